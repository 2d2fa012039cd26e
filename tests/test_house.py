"""The architecture, held: who may import whom, what stays free of torch, what is packaged."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FLOORS = ("record", "profiling", "trainer", "analyzers", "dashboards")
MAY_IMPORT = {
    "record": set(),
    "profiling": {"record"},
    "trainer": {"record", "profiling"},
    "analyzers": {"record"},
    "dashboards": {"record", "analyzers"},
}
TORCH_FAMILY = {"torch", "torchao", "transformers", "nvtx", "pynvml", "psutil", "safetensors"}
TORCH_FREE = ("record", "analyzers", "dashboards")


def modules(floor: str) -> list[Path]:
    return sorted(path for path in (ROOT / floor).rglob("*.py"))


def imports(path: Path) -> set[tuple[str, ...]]:
    """Absolute dotted names that a file imports, relative ones resolved against the package."""
    package = ("stepscope", *path.relative_to(ROOT).with_suffix("").parts[:-1])
    found: set[tuple[str, ...]] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                stem = package[: len(package) - node.level + 1] + stem
            found.update((*stem, alias.name) for alias in node.names)
    return found


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_imports_only_the_floors_below_it(floor: str) -> None:
    for path in modules(floor):
        for name in imports(path):
            if name[0] == "stepscope" and len(name) > 1 and name[1] in FLOORS and name[1] != floor:
                assert name[1] in MAY_IMPORT[floor], f"{path.relative_to(ROOT)} imports {'.'.join(name)}"
            assert name[0] not in FLOORS, f"{path.relative_to(ROOT)} imports {name[0]} as a top-level package"


@pytest.mark.parametrize("floor", TORCH_FREE)
def test_the_analysis_side_never_imports_torch_or_its_family(floor: str) -> None:
    for path in modules(floor):
        heavy = {name[0] for name in imports(path)} & TORCH_FAMILY
        assert not heavy, f"{path.relative_to(ROOT)} imports {heavy}"


@pytest.mark.parametrize("floor", FLOORS)
def test_there_is_no_circle_of_imports_within_a_floor(floor: str) -> None:
    names = {("stepscope", *path.relative_to(ROOT).with_suffix("").parts): path for path in modules(floor)}
    edges = {
        module: {other for name in imports(path) for other in (name, name[:-1]) if other in names and other != module}
        for module, path in names.items()
    }
    done: set[tuple[str, ...]] = set()

    def visit(module: tuple[str, ...], trail: tuple[tuple[str, ...], ...]) -> None:
        assert module not in trail, " → ".join(".".join(m) for m in (*trail, module))
        if module not in done:
            for other in edges[module]:
                visit(other, (*trail, module))
            done.add(module)

    for module in edges:
        visit(module, ())


def test_every_folder_with_modules_is_packaged_and_every_package_exists() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    present = {"stepscope"} | {
        ".".join(("stepscope", *path.parent.relative_to(ROOT).parts)) for floor in FLOORS for path in modules(floor)
    }
    assert listed == present


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    for floor in FLOORS:
        for path in modules(floor):
            parts = path.relative_to(ROOT / floor).with_suffix("").parts
            assert not set(parts) & set(sys.stdlib_module_names), path


def test_no_folder_has_an_init_file_which_would_shadow_standard_packages_but_one_that_steps_aside() -> None:
    found = {path for floor in FLOORS for path in (ROOT / floor).rglob("__init__.py")}
    assert found == {ROOT / "profiling" / "__init__.py"}


def test_the_root_of_a_clone_on_the_path_hides_no_standard_profiling() -> None:
    code = "import sysconfig, profiling; assert profiling.__path__ == [sysconfig.get_path('stdlib') + '/profiling']"
    environment = {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, check=True)


def test_the_type_checkers_view_of_the_package_links_to_every_floor() -> None:
    view = ROOT / "typings" / "stepscope"
    assert {path.name for path in view.iterdir()} == {*FLOORS, "__init__.py"}
    assert all(path.is_symlink() and path.exists() for path in view.iterdir())
