"""The public interface: names, errors, and light imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import inlayer
from inlayer import errors
from tests.console import ROOT

PUBLIC = [
    "ByteTokenizer", "Embeddings", "Head", "InlayerError", "MappedEmbedding", "Model", "Ragged", "Report", "Table",
    "Trace", "TrainConfig", "Weighting", "WordTokenizer", "__version__", "apply_rotary", "attach", "compare",
    "describe", "first_token_pool", "inspect", "last_token_pool", "load", "mean_pool", "open_tokenizer",
    "position_ids_from_mask", "train", "train_bpe", "walk",
]  # fmt: skip


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_public_names_are_frozen() -> None:
    assert sorted(inlayer.__all__) == PUBLIC == dir(inlayer)
    for name in PUBLIC:
        assert getattr(inlayer, name) is not None


def test_citation_has_the_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {inlayer.__version__}\n" in citation


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(inlayer.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(PUBLIC) - {"__version__"}


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Embedings'"):
        _ = inlayer.Embedings


@pytest.mark.parametrize("name", ["analogy", "encode", "encode_iter", "neighbors", "project"])
def test_method_of_a_model_is_named(name: str) -> None:
    assert not hasattr(inlayer, name)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; use inlayer\.load\(\.\.\.\)\.{name}$"):
        getattr(inlayer, name)
    assert callable(getattr(inlayer.Model, name))


HEAVY = "{'torch', 'transformers', 'tokenizers', 'gigatoken', 'tiktoken', 'sentencepiece', 'safetensors'}"


LIGHT = [  # in one process: what one of them loads stays loaded
    "import inlayer",
    "import inlayer; inlayer.ByteTokenizer().encode('Hi'); inlayer.WordTokenizer.from_text('a b').encode('b')",
    "import inlayer.tokenizers, inlayer.cli.serve, inlayer.web.server",  # the process that supervises the workers
    "import sys\nsys.argv = ['inlayer', '--help']\nfrom inlayer.cli import main\ntry: main()\nexcept SystemExit: pass",
    "import inlayer.learn, inlayer.learn.progress_file, inlayer.learn.course_steps, inlayer.learn.questions",
    "import sys\nsys.argv = ['inlayer', 'learn', '--help']\nfrom inlayer.cli import main\n"
    "try: main()\nexcept SystemExit: pass",
    "import sys\nsys.argv = ['inlayer', 'walk', '--help']\nfrom inlayer.cli import main\n"
    "try: main()\nexcept SystemExit: pass",
]
CONTROL = "import inlayer; inlayer.load('default').tokenizer.encode('Hi')"  # this needs one


def test_light_imports_load_no_heavy_library() -> None:
    check = f"\nimport sys\nprint('\\nHEAVY', sorted({HEAVY} & set(sys.modules)))\n"
    printed = run_python("".join(code + check for code in [*LIGHT, CONTROL])).splitlines()
    found = [line for line in printed if line.startswith("HEAVY")]
    assert found[:-1] == ["HEAVY []"] * len(LIGHT)
    assert "'tokenizers'" in found[-1]


WRONG_TYPES = [None, 3, [1], object()]
WRONG_ARGUMENTS = {  # one argument of each function, after valid ones
    "train": inlayer.train,
    "files": lambda value: inlayer.TrainConfig(files=value),
    "describe": inlayer.describe,
    "load": inlayer.load,
    "dtype": lambda value: inlayer.load("default", dtype=[value]),
    "inspect": inlayer.inspect,
    "compare": lambda value: inlayer.compare("default", value),
    "Model": inlayer.Model,
    "open_tokenizer": inlayer.open_tokenizer,
    "train_bpe": lambda value: inlayer.train_bpe(value, 300),
    "WordTokenizer": inlayer.WordTokenizer,
    "walk": lambda value: inlayer.walk([value]),
    "walk positions": lambda value: inlayer.walk("Hi", positions=[value]),
    "walk theta": lambda value: inlayer.walk("Hi", theta=[value]),
    "MappedEmbedding": inlayer.MappedEmbedding,
    "Embeddings": lambda value: inlayer.Embeddings([value], 4),
    "per_layer": lambda value: inlayer.Embeddings(4, 4, per_layer=[value]),
    "value_embeddings": lambda value: inlayer.Embeddings(4, 4, value_embeddings=[value]),
    "Head": lambda value: inlayer.Head(4, 4, dtype=[value]),
    "Table": lambda value: inlayer.Table(4, 4, dtype=[value]),
    "apply_rotary": lambda value: inlayer.apply_rotary(value, value, value, value),
    "position_ids_from_mask": inlayer.position_ids_from_mask,
    "mean_pool": inlayer.mean_pool,
    "first_token_pool": inlayer.first_token_pool,
    "last_token_pool": inlayer.last_token_pool,
}


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_argument_of_the_wrong_type_is_a_dtype_error(name: str) -> None:
    for value in WRONG_TYPES:
        with pytest.raises(errors.DtypeError) as caught:
            WRONG_ARGUMENTS[name](value)
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("without_type_checks")
def test_train_and_model_say_how_to_pass_a_path() -> None:
    with pytest.raises(errors.DtypeError, match=r"config is a str; .* TrainConfig, such as .*TrainConfig\(files=\["):
        inlayer.train("README.md")  # type: ignore[arg-type]
    with pytest.raises(errors.DtypeError, match=r"store is a str; .* call inlayer\.load\(source\)"):
        inlayer.Model("default")  # type: ignore[arg-type]


def test_every_error_is_an_inlayer_error_and_a_builtin() -> None:
    for error in [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]:
        assert issubclass(error, errors.InlayerError)
        if error is not errors.InlayerError:
            assert issubclass(error, (ValueError, IndexError, TypeError, FileNotFoundError, ImportError))
