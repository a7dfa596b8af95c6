"""The training mode of a job, as far as memory depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from waveplan.checks import choice, entries, real, shown
from waveplan.errors import InputError
from waveplan.facts.fields import check, count, given, switch, word
from waveplan.facts.gpus import ARCHITECTURES, gpu_named
from waveplan.facts.kinds import DTYPE_BYTES, dtype_name

__all__ = ["BASES", "HEADS", "LORA_MODULES", "RECOMPUTE_MODULES", "Training"]

LORA_MODULES = (
    "attention.q",
    "attention.k",
    "attention.v",
    "attention.o",
    "gdn.qkv",
    "gdn.z",
    "gdn.out",
    "mlp.gate",
    "mlp.up",
    "mlp.down",
    "experts.gate_up",
    "experts.down",
    "shared.gate",
    "shared.up",
    "shared.down",
)
_FC1 = ("mlp.gate", "mlp.up", "experts.gate_up", "shared.gate", "shared.up")
_FC2 = ("mlp.down", "experts.down", "shared.down")
# The projections that trainers name, in our terms.
_LORA_ALIASES = {
    "q_proj": ("attention.q",),
    "k_proj": ("attention.k",),
    "v_proj": ("attention.v",),
    "linear_qkv": ("attention.q", "attention.k", "attention.v"),
    "o_proj": ("attention.o",),
    "linear_proj": ("attention.o",),
    "in_proj": ("gdn.qkv", "gdn.z"),
    "in_proj_qkv": ("gdn.qkv",),
    "in_proj_z": ("gdn.z",),
    "in_proj_qkvz": ("gdn.qkv", "gdn.z"),
    "out_proj": ("gdn.out",),
    "gate_proj": ("mlp.gate", "experts.gate_up", "shared.gate"),
    "up_proj": ("mlp.up", "experts.gate_up", "shared.up"),
    "gate_up_proj": _FC1,
    "linear_fc1": _FC1,
    "down_proj": _FC2,
    "linear_fc2": _FC2,
    "all-linear": LORA_MODULES,
}

RECOMPUTE_MODULES = (
    "core_attn",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "moe",
    "moe_act",
    "shared_experts",
)

HEADS = ("chunked", "full", "upcast", "shifted", "vocab_parallel", "fused_loss", "fused")
"""Logits of a few tokens at once; of all, with their softmax in fp32 and its gradient; the same of
logits that are turned to fp32, shifted by a copy and returned (Transformers); a shifted copy and
its loss in the logits' own type (the same under DeepSpeed, without autocast); of all, the softmax
in place (Megatron); the same with the fused loss; projection and loss in one kernel."""


BASES = {"bf16": 128, "fp8": 65, "int8": 65, "nf4": 36}
"""Bytes of 64 weights: with fp8 and int8 a scale a block or row, with nf4 an fp32 scale of 64."""

_BACKWARD = {"phase": ("forward+backward",)}
_ADAPTERS = {"adapters": (True,)}
_HEAD = {"output_layer": (True,)}
_NEEDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "recompute_modules": {"recompute": ("selective",)},
    "recompute_method": {"recompute": ("full",)},
    "recompute_num_layers": {"recompute": ("full",)},
    "lora_modules": _ADAPTERS,
    "gdn_output_rank": _ADAPTERS,
    "expert_slots": _ADAPTERS,
    "expert_fc1_fused": {"expert_slots": (True,)},
    "modules_to_save": _ADAPTERS,
    "gradients_pending": _ADAPTERS | _BACKWARD,
    "head": _HEAD,
    "head_chunk": {"head": ("chunked",)} | _HEAD,
    "wgrad_deferral": {"head": tuple(HEADS[1:-1])} | _HEAD | _BACKWARD,
    "softmax_fusion": {"attention": ("auto", "unfused")},
    "grad_dtype": _BACKWARD,
    "moment_dtype": {"optimizer": ("adam",)} | _BACKWARD,
    "optimizer": _BACKWARD,
    "master_weights": _BACKWARD,
    "fused_optimizer": _BACKWARD,
    "foreach_step": _BACKWARD,
    "microbatches": _BACKWARD,
    "expert_overlap": _BACKWARD,
    "offload": _BACKWARD,
}
"""What a fact acts on: the facts that must have one of these words where it is stated."""


def _names(name: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str):
        values = [part.strip() for part in values.split(",") if part.strip()]
    names = entries(name, values)
    for value in names:
        if not isinstance(value, str):
            raise InputError(f"{name} must be a list of names, not of {shown(value)}")
    return names


def _lora_modules(field: str, values: object) -> tuple[str, ...]:
    chosen: set[str] = set()
    for name in _names(field, values):
        if name in LORA_MODULES:
            chosen.add(name)
        elif name in _LORA_ALIASES:
            chosen.update(_LORA_ALIASES[name])
        else:
            raise InputError(
                f"{field} has {shown(name)}: known are {', '.join((*LORA_MODULES, *_LORA_ALIASES))}"
            )
    return tuple(name for name in LORA_MODULES if name in chosen)


def _among(*words: str) -> Any:
    """The check of a list of some words."""

    def check(name: str, values: object) -> tuple[str, ...]:
        names = _names(name, values)
        for one in names:
            choice(name, one, words)
        return tuple(word for word in words if word in names)

    return check


def _architecture(name: str, value: object) -> str:
    if isinstance(value, str) and value.lower() in ARCHITECTURES:
        return value.lower()
    return gpu_named(name, value).architecture


def _dropout(name: str, value: object) -> float:
    return real(name, value, 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Training mode and execution facts; the defaults are the path that was measured.

    Raises:
        InputError: a value is not one of those listed, or two contradict each other.
    """

    recompute: str = word(
        "full",
        ("full", "selective", "none"),
        "activation recomputation (default: full)",
        option="facts",
        metavar="MODE",
    )
    recompute_method: str = word("uniform", ("uniform", "block"), "with full recomputation")
    recompute_num_layers: int = count(
        1, "with full recomputation: layers between two kept boundaries", 1
    )
    recompute_modules: tuple[str, ...] = given(
        (),
        "with selective recomputation: what is recomputed",
        _names,
        option="facts",
        metavar="A,B",
    )
    """Megatron's module names; empty: "core_attn"."""
    phase: str = word(
        "forward+backward",
        ("forward", "forward+backward"),
        "a forward alone, or with its backward (default)",
    )
    output_layer: bool = switch(True, "the last pipeline stage has a vocabulary head")

    lora_rank: int = count(
        8, "rank of the adapters (default: 8)", 0, 1 << 20, option="facts", metavar="R"
    )
    """0: every parameter is trained."""
    lora_modules: tuple[str, ...] = given(
        LORA_MODULES,
        "what carries an adapter (default: all linear layers); trainers' names such as q_proj are "
        "understood",
        _lora_modules,
        option="facts",
        metavar="A,B",
    )
    gdn_output_rank: int | None = count(
        None,
        'rank of the GDN output adapter (default: lora_rank, where "gdn.out" has one)',
        0,
        1 << 20,
    )
    expert_slots: bool = switch(
        doc="expert adapter weights are converted for the grouped kernel on each call"
    )
    expert_fc1_fused: bool = switch(
        doc="the converted slot of FC1 is the fused gate/up adapter, whose rank is lora_rank"
    )

    base: str = word(
        "auto",
        ("auto", *BASES),
        "type of the frozen base beneath adapters (default: as the checkpoint stores it)",
        option="facts",
    )
    """What trains is not quantised: with full fine-tuning only "auto" and "bf16" are allowed."""
    modules_to_save: tuple[str, ...] = given(
        (),
        "trained whole beside adapters: embedding, head",
        _among("embedding", "head"),
        option="facts",
        metavar="A,B",
    )

    kernels: str = word(
        "auto",
        ("auto", "eager", "fused", "local"),
        "how layers run: module by module, as measured with adapters; fused as in Transformer"
        " Engine; Megatron's own modules (default: eager with adapters, else fused)",
        option="facts",
    )
    compiled: bool = switch(doc="layers run compiled: fused units keep less", option="facts")
    head: str = word(
        "chunked",
        HEADS,
        "how the vocabulary head and its loss run (default: chunked)",
        option="facts",
    )
    head_chunk: int = count(512, "tokens of the chunked head at once (default: 512)", 1)
    wgrad_deferral: int = count(0, "micro-batches whose head gradient is deferred (Megatron)")
    attention: str = word(
        "flash",
        ("auto", "flash", "fused", "unfused"),
        "attention kernel (default: flash); auto: unknown, priced as unfused",
        option="facts",
    )
    softmax_fusion: bool = switch(True, "an unfused attention's softmax is one kernel")
    sequence_length: int | None = count(
        None,
        "tokens of a row of the batch; not given: a pack is one row",
        1,
        option="facts",
    )
    attention_mask: bool = switch(doc="a mask of tokens x tokens is made beside the batch")
    attention_dropout: float = given(
        0.0, "dropout of attention scores", _dropout, kind="share", metavar="P"
    )
    hidden_dropout: float = given(0.0, "dropout of residuals", _dropout, kind="share", metavar="P")
    microbatches: int | None = count(
        None, "micro-batches of a step; not given: many", 1, option="facts"
    )
    mtp: bool = switch(doc="the model's multi-token-prediction modules are trained")
    gradients_pending: bool = switch(
        doc="adapter gradients are yet to be allocated, by the first backward", option="facts"
    )
    dispatcher: str = word(
        "auto",
        ("auto", "alltoall", "allgather", "hybridep", "deepep"),
        "token dispatcher of the experts (default: alltoall at EP 1, else hybridep)",
        option="facts",
    )
    hybridep_buffer: int = count(0, "bytes of the HybridEP buffer that is already allocated")
    grouped_gemm: bool = switch(True, "experts run as grouped products")
    expert_overlap: bool = switch(doc="expert communication overlaps another micro-batch")
    expert_path: str = word(
        "fused_fc1",
        ("fused_fc1", "fc2", "unknown"),
        "known of the grouped experts: all, all but FC1, or nothing",
    )
    routing: str = word(
        "safe",
        ("safe", "balanced", "worst"),
        "tokens assumed on the busiest expert rank (default: safe)",
        option="facts",
    )
    """Of the routed tokens of an expert-parallel group, the busiest rank gets its equal share
    ("balanced"), all ("worst"), or ("safe") one and a half times its share in the one layer that
    runs and, where eager layers keep their activations, all in those."""
    shared_overlap: bool = switch(doc="shared experts overlap the dispatch")
    shared_recompute: bool = switch(doc="shared experts are recomputed")
    activation_fusion: bool | None = switch(
        None, "dense layers run a fused gated unit (default: as the model's own implementation)"
    )

    grad_dtype: str = given("float32", "type of gradients", dtype_name, metavar="TYPE")
    moment_dtype: str = given(
        "float32", "type of the optimizer's moments", dtype_name, metavar="TYPE"
    )
    optimizer: str = word(
        "adam",
        ("adam", "adam8bit", "sgd", "muon", "none"),
        "two moments (of 8 bits with a scale a block), none, or no optimizer state on this rank",
        option="facts",
    )
    master_weights: bool = switch(
        True, "fp32 copies of the trained parameters, unless those are fp32 themselves"
    )
    fused_optimizer: bool = switch(
        doc="the step runs in the backward: no gradient is kept (torchtune)"
    )
    foreach_step: bool = switch(
        doc="the step makes lists of temporaries, as PyTorch's own AdamW does"
    )
    offload: tuple[str, ...] = given(
        (),
        "kept in host memory: activations, optimizer",
        _among("activations", "optimizer"),
        option="facts",
        metavar="A,B",
    )
    fp8: bool = switch(doc="products in 8 bits: copies of weights and activations")
    cuda_graphs: bool = switch(doc="layers are captured as CUDA graphs")
    user_buffers: bool = switch(doc="communication runs in registered buffers")
    gpu: str = given(
        "hopper",
        "the device, such as H100 or A100-80, for its memory; or an architecture alone (default: "
        "hopper)",
        _architecture,
        option="memory",
        metavar="NAME",
    )
    """Kept as the architecture, for the libraries' workspaces."""
    cublas_config: bool = switch(doc="CUBLAS_WORKSPACE_CONFIG is :4096:8")

    def __post_init__(self) -> None:
        check(self)
        for name in self.recompute_modules:
            choice("recompute_modules", name, RECOMPUTE_MODULES)
        for name in filter(self.stated, _NEEDS):
            for other, words in _NEEDS[name].items():
                if (value := getattr(self, other)) not in words:
                    needed = " or ".join(map(repr, words))
                    raise InputError(f"{name} needs {other}={needed}, not {value!r}")
        if self.recompute == "selective":
            names = self.recompute_modules
            chosen = tuple(name for name in RECOMPUTE_MODULES if name in names)
            object.__setattr__(self, "recompute_modules", chosen or ("core_attn",))
        if self.full_finetuning and self.base not in ("auto", "bf16"):
            raise InputError(
                f"base is {self.base!r}, but every parameter is trained: lora_rank is 0"
            )
        if self.fused_optimizer and (self.microbatches or 1) > 1:
            raise InputError(
                f"fused_optimizer steps in every backward, but microbatches is {self.microbatches}"
            )

    def stated(self, name: str) -> bool:
        """A fact differs from its default, and from nothing at all where that is None."""
        value, default = getattr(self, name), type(self).__dataclass_fields__[name].default
        return bool(value) if default is None else value != default

    @property
    def adapters(self) -> bool:
        """Adapters are trained: lora_rank is not 0."""
        return not self.full_finetuning

    @property
    def backward(self) -> bool:
        """A backward pass follows the forward."""
        return self.phase == "forward+backward"

    @property
    def full_finetuning(self) -> bool:
        """Every parameter is trained."""
        return self.lora_rank == 0

    def base_bytes(self, stored: str, parameter_bytes: int) -> int:
        """Bytes of 64 weights of the frozen layers, ``stored`` so in the checkpoint."""
        base = self.base
        if base == "auto":
            base = stored if stored in BASES else ""
        if self.full_finetuning or not base:
            return 64 * parameter_bytes
        return BASES[base]

    @property
    def kernels_of(self) -> str:
        """How layers run: "eager", "fused" or "local"."""
        if self.kernels != "auto":
            return self.kernels
        return "eager" if self.lora_rank else "fused"

    def __str__(self) -> str:
        mode = f"LoRA rank {self.lora_rank}" if self.lora_rank else "full fine-tuning"
        return f"{self.recompute} recompute, {mode}"

    def assumed(self, *, gpu: bool = True) -> str:
        """How layers run, in a few words: what prices take for granted unless they are told, with
        the GPU's kind where asked."""
        parts = [f"{self.kernels_of} layers", f"{self.head} head", f"{self.attention} attention"]
        if self.attention_dropout or self.hidden_dropout:
            parts.append("dropout")
        if not self.grouped_gemm:
            parts.append("experts one by one")
        if self.backward:
            moments = DTYPE_BYTES[self.moment_dtype] if self.optimizer == "adam" else 0
            parts.append(self.optimizer + (" in 16 bits" if moments == 2 else ""))
        if gpu:
            parts.append(f"{self.gpu} GPU")
        return ", ".join(part.replace("_", "-") for part in parts)

    @property
    def moment_bytes(self) -> int:
        """Bytes of one moment of a trained parameter."""
        of = {"adam": DTYPE_BYTES[self.moment_dtype], "adam8bit": 1}
        return of.get(self.optimizer, 0)

    def optimizer_state_bytes(self, parameter_bytes: int) -> int:
        """Bytes of optimizer state per trained parameter, before any division over ranks."""
        if self.optimizer in ("none", "muon"):
            return 0
        return 2 * self.moment_bytes + (4 if self.master_weights and parameter_bytes < 4 else 0)
