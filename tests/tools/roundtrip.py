#!/usr/bin/env python3
"""roundtrip: what `--dump-after=all` prints, `stepc opt` reads and prints again, the same bytes.

roundtrip.py STEPC RECIPE FOLDER CONFIG...
    each published config, under every recompute policy; texts that were seen before are left out
"""

import re
import subprocess
import sys

POLICIES = {
    "none": [],
    "block": ["step_scheduler.global_batch_size=2"],
    "submodule": ["model.torch_dtype=float32"],
    "selective": ["stepc.precision.compute=f32"],
}


def dumps(stepc, recipe, config, policy):
    """Pass and text of every dump of one plan."""
    command = [stepc, "plan", recipe, "--dump-after=all", "--json"]
    sets = ["model.pretrained_model_name_or_path=" + config, "stepc.recompute.policy=" + policy]
    for key in sets + POLICIES[policy]:
        command += ["--set", key]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    out = out[: out.index("\n{\n") + 1]  # the report follows
    parts = re.split(r"^# after (\S+)\n", out, flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def main():
    stepc, recipe, folder, configs = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    seen = set()
    for config in configs:
        for policy in POLICIES:
            found = dumps(stepc, recipe, config, policy)
            if len(found) < 13:
                sys.exit("FAIL %s, %s: only %d dumps" % (config, policy, len(found)))
            for name, text in found:
                if hash(text) in seen:
                    continue
                seen.add(hash(text))
                path = "%s/%s.sir" % (folder, name)
                with open(path, "w") as file:
                    file.write(text)
                again = subprocess.run([stepc, "opt", path], stdout=subprocess.PIPE, text=True)
                if again.returncode or again.stdout != text:
                    sys.exit("FAIL %s, %s, after %s: %s" % (config, policy, name, path))
    print("ok %d texts" % len(seen))


if __name__ == "__main__":
    main()
