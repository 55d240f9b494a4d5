import os
import lit.formats

config.name = "stepc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".test", ".sir"]
config.excludes = ["Inputs", "fixtures"]
config.test_source_root = os.path.dirname(__file__)
build = lit_config.params.get("build", os.path.join(config.test_source_root, "..", "build"))
config.test_exec_root = os.path.join(build, "tests", "out")

root = os.path.abspath(os.path.join(config.test_source_root, ".."))
config.environment["PATH"] = os.pathsep.join(
    [os.path.abspath(build), "/usr/lib/llvm-19/bin", config.environment.get("PATH", "/usr/bin:/bin")])
config.environment["STEPC_COUNTER"] = os.path.join(os.path.abspath(build), "tests", "libcount_allocations.so")
config.substitutions.append(("%stepc", os.path.join(os.path.abspath(build), "stepc")))
config.substitutions.append(("%root", root))
config.substitutions.append(("%fixtures", os.path.join(root, "tests", "fixtures")))
config.substitutions.append(("%check", "python3 " + os.path.join(root, "tests", "tools", "check.py")))
config.substitutions.append(("%make", "python3 " + os.path.join(root, "tests", "tools", "make.py")))
config.substitutions.append(("%python", "python3"))
config.substitutions.append(("%build", os.path.abspath(build)))
config.substitutions.append(("%mpirun", "mpirun --oversubscribe --allow-run-as-root -n"))
config.substitutions.append(("%cases", os.path.join(root, "tests", "cases")))
config.substitutions.append(("%tools", os.path.join(root, "tests", "tools")))
config.substitutions.append(("%expect", "python3 -SE " + os.path.join(root, "tests", "tools", "expect.py")))
# plans the little model of the diagnostics' tests: `%probe stepc.definition=FILE.model`
config.substitutions.append(("%probe", "%s plan %s --set" % (
    os.path.join(os.path.abspath(build), "stepc"), os.path.join(root, "tests", "golden", "diagnostics", "Inputs", "probe.yaml"))))
if lit_config.params.get("update"):
    config.substitutions.append((r"\bFileCheck\b", "python3 " + os.path.join(root, "tests", "tools", "fill_checks.py")))
if os.environ.get("STEPC_TEST_FULL") == "1":
    config.available_features.add("full")
