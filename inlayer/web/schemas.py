"""Request models: the fields that each route accepts, with their limits. FastAPI validates and documents them.

- unknown fields are errors, and JSON values are not converted ("8" is not an integer)
- limits bound the work before it starts; the library checks limits that depend on the model, such as its ids
Tested in tests/web/test_schemas.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from inlayer.learn.questions import MAX_SEED
from inlayer.trace.gradient_step import LEARNING_RATES
from inlayer.web.request_body import MAX_CHARACTERS, MAX_TEXTS

MAX_DIMS, MAX_TOKENS, MAX_PADDING, MAX_NEIGHBORS = 512, 1_024, 64, 64
MAX_BATCH_TOKENS = 1_024  # texts x max_tokens: the work
MAX_RESPONSE_VALUES = 32_768  # texts x max_tokens x dims: the size of the response
MAX_FIELDS = 1_024
MAX_INTEGER = 2**63 - 1
MAX_CODE = 65_536  # characters of a learner's file
MAX_LEARNING_RATES, MAX_LEARNING_RATE = 32, 1e6

MapMethod = Annotated[
    Literal["best", "pca", "tsne"], Field(description="best: t-SNE if it has been computed, otherwise PCA.")
]
ModelName = Annotated[str | None, Field(description="A name from GET /api/models; by default, the first.")]


class RequestModel(BaseModel):
    """A request; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, body: Any) -> Any:
        """Reject a body with too many fields; pydantic would create an error for each, which takes seconds."""
        if isinstance(body, dict) and len(body) > MAX_FIELDS:
            raise ValueError(f"the body has {len(body):,} fields; at most {MAX_FIELDS:,} are allowed")
        return body


class WalkRequest(RequestModel):
    """Body of POST /api/walk: the arguments of `inlayer.walk`."""

    model_config = ConfigDict(strict=True)

    texts: list[str] = Field(min_length=1, max_length=MAX_TEXTS, examples=[["I love dogs"]])
    model: ModelName = None
    dims: int = Field(8, ge=1, le=MAX_DIMS, description="Channels to return.")
    max_tokens: int = Field(64, ge=1, le=MAX_TOKENS, description="Tokens to return per text.")
    first_token: int = Field(0, ge=0, le=MAX_INTEGER, description="Index of the first token to return.")
    first_channel: int = Field(0, ge=0, le=MAX_INTEGER, description="Index of the first channel to return.")
    positions: Literal["none", "learned", "sinusoidal", "rotary"] | None = Field(
        None, description="Replace the model's positions."
    )
    theta: float | None = Field(
        None, gt=0, le=1e12, allow_inf_nan=False, description="Base of rotary or sinusoidal positions."
    )
    swap: list[Annotated[int, Field(ge=0, le=MAX_INTEGER)]] | None = Field(
        None, min_length=2, max_length=2, description="Indices of two tokens to swap."
    )
    pad: int = Field(0, ge=0, le=MAX_PADDING, description="Padding tokens to append.")

    @model_validator(mode="after")
    def check_size(self) -> WalkRequest:
        """Limit the work and the size of the response."""
        texts, tokens, dims = len(self.texts), self.max_tokens, self.dims
        if (characters := sum(map(len, self.texts))) > MAX_CHARACTERS:
            raise ValueError(
                f"the texts have {characters:,} characters; the limit is {MAX_CHARACTERS:,}; `inlayer walk --file` "
                "takes longer texts"
            )
        for name, value, limit in (
            (f"texts x max_tokens ({texts} x {tokens})", texts * tokens, MAX_BATCH_TOKENS),
            (f"texts x max_tokens x dims ({texts} x {tokens} x {dims})", texts * tokens * dims, MAX_RESPONSE_VALUES),
        ):
            if value > limit:
                raise ValueError(f"{name}: {value:,} is more than the limit of {limit:,}")
        return self


class GradientStepRequest(WalkRequest):
    """Body of POST /api/gradient-step: a walk, and the learning rates of the steps to try."""

    learning_rates: list[Annotated[float, Field(ge=0, le=MAX_LEARNING_RATE, allow_inf_nan=False)]] = Field(
        default=list(LEARNING_RATES), min_length=1, max_length=MAX_LEARNING_RATES
    )
    method: MapMethod = "best"


class ModelQuery(RequestModel):
    """Query of routes about one model."""

    model: ModelName = None


class MapQuery(ModelQuery):
    """Query of GET /api/map."""

    method: MapMethod = "best"


class TokenQuery(ModelQuery):
    """Query of GET /api/token: one token and its nearest rows."""

    id: int = Field(ge=-MAX_INTEGER, le=MAX_INTEGER, description="The token's id.")
    k: int = Field(8, ge=1, le=MAX_NEIGHBORS, description="Nearest rows to return.")


class InitializationQuery(ModelQuery):
    """Query of GET /api/initialization: how a table of this size is initialized."""

    seed: int = Field(0, ge=0, le=MAX_INTEGER, description="Seed of the random rows.")
    dims: int = Field(8, ge=1, le=MAX_DIMS, description="Channels to return.")


# ---- the course

Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]


class LessonQuery(RequestModel):
    """Query of GET /api/course/lesson."""

    id: str = Field(examples=["forward"])


class ExerciseQuery(RequestModel):
    """Query of GET /api/course/exercise."""

    id: str = Field(examples=["forward/hidden_shape"])
    seed: Seed = 0


class TaskRequest(RequestModel):
    """A task by its id."""

    task: str = Field(examples=["gather"])


class ResetRequest(TaskRequest):
    """Body of POST /api/course/reset; `base_digest` is the digest of the file it replaces, if there was one."""

    base_digest: str | None = None


class CodeRequest(ResetRequest):
    """Code for a task."""

    code: Annotated[str, Field(max_length=MAX_CODE)]


class ReadRequest(RequestModel):
    """Body of POST /api/course/read."""

    lesson: str


class SkipRequest(RequestModel):
    """Body of POST /api/course/skip."""

    step: str = Field(examples=["task/gather"])


class AnswerRequest(RequestModel):
    """Body of POST /api/course/answer: an answer to an exercise or to a quiz question."""

    exercise: str | None = None
    question: str | None = None
    seed: Seed = 0
    answer: str = Field("", max_length=4_096)
    matches_sample: bool = Field(False, description="The learner's free-text answer contains every point.")
    repeated: bool = Field(False, description="The question was missed before in this quiz.")
    reveal: bool = Field(False, description="Show the answer; the exercise remains unfinished and gets other numbers.")

    @model_validator(mode="after")
    def check_target(self) -> AnswerRequest:
        """Require exactly one of exercise and question."""
        if (self.exercise is None) == (self.question is None):
            raise ValueError("specify either an exercise or a question")
        return self


class EmbeddingsRequest(RequestModel):
    """Body of POST /v1/embeddings."""

    model_config = ConfigDict(strict=True)

    input: Any = Field(description="A text, a list of texts, a list of ids, or a list of lists of ids.")
    model: str = Field(description="An id from GET /v1/models.")
    encoding_format: Literal["float", "base64"] | None = None  # some clients send null for "float"
    dimensions: int | None = Field(None, ge=1)
    user: str | None = None
