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
    [
        os.path.abspath(build),
        "/usr/lib/llvm-19/bin",
        config.environment.get("PATH", "/usr/bin:/bin"),
    ]
)
config.environment["STEPC_COUNTER"] = os.path.join(
    os.path.abspath(build), "tests", "libcount_allocations.so"
)
stepc = os.path.join(os.path.abspath(build), "stepc")
golden = os.path.join(root, "tests", "golden")


def tool(name):
    return os.path.join(root, "tests", "tools", name + ".py")


config.substitutions.append(("%tests", os.path.join(os.path.abspath(build), "tests")))
config.substitutions += [("%stepc", stepc), ("%root", root), ("%python", "python3")]
config.substitutions.append(("%fixtures", os.path.join(root, "tests", "fixtures")))
config.substitutions += [
    ("%" + name, "python3 " + tool(name)) for name in ("check", "make", "patch", "tensors")
]
config.substitutions += [
    ("%mpirun", os.path.join(root, "tests", "tools", "mpirun.sh")),
    ("%build", os.path.abspath(build)),
    ("%cases", os.path.join(root, "tests", "cases")),
    ("%tools", os.path.join(root, "tests", "tools")),
]
config.substitutions.append(("%expect", "python3 -SE " + tool("expect")))
# `%probe stepc.definition=FILE.model` plans a small model with the config of the diagnostics' tests
recipe = os.path.join(golden, "diagnostics", "Inputs", "probe.yaml")
config.substitutions.append(("%probe", "%s plan %s --set" % (stepc, recipe)))
# `%opt` is `stepc opt` with the options of a recipe
recipe = os.path.join(golden, "passes", "Inputs", "recipe.yaml")
config.substitutions.append(("%opt", "%s opt --recipe %s" % (stepc, recipe)))
# `lit --param update=1` writes check lines where a test has none
if lit_config.params.get("update"):
    config.substitutions.append((r"\bFileCheck\b", "python3 " + tool("fill_checks")))
if os.environ.get("STEPC_TEST_FULL") == "1":
    config.available_features.add("full")
if os.path.exists(os.path.join(build, "tests", "emulated_cuda", "libcuda.so.1")):
    config.available_features.add("cuda")
with open(os.path.join(build, "CMakeCache.txt")) as cache:
    if "STEPC_SANITIZE:BOOL=ON" in cache.read():
        config.available_features.add("sanitized")
