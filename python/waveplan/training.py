"""What a job trains and how it runs, as far as memory depends on it."""

from __future__ import annotations

from dataclasses import dataclass

from waveplan._values import choice, entries, flag, integer, shown
from waveplan.errors import InputError
from waveplan.model import DTYPE_BYTES, dtype_name

__all__ = ["LORA_MODULES", "RECOMPUTE_MODULES", "Training"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Training mode and execution facts; the defaults are the path that was measured.

    Raises:
        InputError: a value is not one of those listed, or two contradict each other.
    """

    recompute: str = "full"
    """"full", "selective" or "none"."""
    recompute_method: str = "uniform"
    """Full recompute: "uniform" or "block"."""
    recompute_num_layers: int = 1
    """Full recompute: layers between two kept boundaries."""
    recompute_modules: tuple[str, ...] = ()
    """Selective recompute: Megatron's module names; empty: "core_attn"."""
    phase: str = "forward+backward"
    """"forward" or "forward+backward"."""
    gradients_pending: bool = False
    """Adapter gradients are not allocated yet: the first backward does, out of what is free."""
    compiled: bool = False
    """Layers run compiled: a gated unit that is no fused one keeps less."""
    output_layer: bool = True
    """The last pipeline stage has a vocabulary head."""

    lora_rank: int = 8
    """Rank of the trained adapters; 0: every parameter is trained."""
    lora_modules: tuple[str, ...] = LORA_MODULES
    """What carries an adapter; trainers' names such as "q_proj" are understood."""
    gdn_output_rank: int | None = None
    """Rank of the GDN output adapter; None: ``lora_rank`` where "gdn.out" has one."""
    expert_slots: bool = False
    """Expert adapter weights are converted for the grouped kernel on each call."""
    expert_fc1_fused: bool = False
    """The converted slot of FC1 is the fused gate/up adapter, whose rank is ``lora_rank``."""

    dispatcher: str = "auto"
    """"alltoall", "hybridep" or "auto": alltoall at EP 1, hybridep above."""
    hybridep_buffer: int = 0
    """Bytes of the HybridEP buffer that is already allocated."""
    expert_path: str = "fused_fc1"
    """What is known of the grouped experts: "fused_fc1", "fc2" (FC1 unknown) or "unknown"."""
    routing: str = "safe"
    """Rows on the busiest expert rank: "safe" (measured allowance) or "balanced"."""
    shared_overlap: bool = False
    shared_recompute: bool = False
    activation_fusion: bool | None = None
    """Fused gated unit in dense layers; None: as the model's own implementation."""

    grad_dtype: str = "float32"
    moment_dtype: str = "float32"
    optimizer: str = "adam"
    """"adam" (two moments), "sgd" (none) or "none" (no optimizer state on this rank)."""
    master_weights: bool = True
    """An fp32 copy of the trained parameters, kept unless those are fp32 themselves."""
    distributed_optimizer: bool = False
    """Optimizer state is divided over DP x CP."""

    def __post_init__(self) -> None:
        choice("recompute", self.recompute, ("full", "selective", "none"))
        choice("recompute_method", self.recompute_method, ("uniform", "block"))
        choice("phase", self.phase, ("forward", "forward+backward"))
        choice("dispatcher", self.dispatcher, ("auto", "alltoall", "hybridep"))
        choice("expert_path", self.expert_path, ("fused_fc1", "fc2", "unknown"))
        choice("routing", self.routing, ("safe", "balanced"))
        choice("optimizer", self.optimizer, ("adam", "sgd", "none"))
        for name in [
            "compiled",
            "gradients_pending",
            "output_layer",
            "expert_slots",
            "expert_fc1_fused",
            "shared_overlap",
            "shared_recompute",
            "master_weights",
            "distributed_optimizer",
        ]:
            flag(name, getattr(self, name))
        if self.activation_fusion is not None:
            flag("activation_fusion", self.activation_fusion)
        self._set(
            "recompute_num_layers", integer("recompute_num_layers", self.recompute_num_layers, 1)
        )
        self._set("lora_rank", integer("lora_rank", self.lora_rank, 0, 1 << 20))
        self._set("hybridep_buffer", integer("hybridep_buffer", self.hybridep_buffer))
        if self.gdn_output_rank is not None:
            rank = integer("gdn_output_rank", self.gdn_output_rank, 0, 1 << 20)
            self._set("gdn_output_rank", rank)
        for name in ("grad_dtype", "moment_dtype"):
            self._set(name, dtype_name(getattr(self, name)))
        self._set("recompute_modules", self._recompute_modules())
        self._set("lora_modules", _lora_modules(self.lora_modules))
        if self.expert_slots and not self.lora_rank:
            raise InputError("expert_slots needs adapters: lora_rank is 0")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _recompute_modules(self) -> tuple[str, ...]:
        names = _names("recompute_modules", self.recompute_modules)
        for name in names:
            choice("recompute_modules", name, RECOMPUTE_MODULES)
        if names and self.recompute != "selective":
            raise InputError(
                f"recompute_modules needs recompute='selective', not {self.recompute!r}"
            )
        if self.recompute == "selective" and not names:
            return ("core_attn",)
        return tuple(name for name in RECOMPUTE_MODULES if name in names)

    @property
    def backward(self) -> bool:
        """A backward pass follows the forward."""
        return self.phase == "forward+backward"

    @property
    def full_finetuning(self) -> bool:
        """Every parameter is trained."""
        return self.lora_rank == 0

    def optimizer_state_bytes(self, parameter_bytes: int) -> int:
        """Bytes of optimizer state per trained parameter, before any division over ranks."""
        parameter_bytes = integer("parameter_bytes", parameter_bytes)
        if self.optimizer == "none":
            return 0
        moments = 2 * DTYPE_BYTES[self.moment_dtype] if self.optimizer == "adam" else 0
        return moments + (4 if self.master_weights and parameter_bytes < 4 else 0)


def _names(name: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str):
        values = [part.strip() for part in values.split(",") if part.strip()]
    names = entries(name, values)
    for value in names:
        if not isinstance(value, str):
            raise InputError(f"{name} must be a list of names, not of {shown(value)}")
    return names


def _lora_modules(values: object) -> tuple[str, ...]:
    chosen: set[str] = set()
    for name in _names("lora_modules", values):
        if name in LORA_MODULES:
            chosen.add(name)
        elif name in _LORA_ALIASES:
            chosen.update(_LORA_ALIASES[name])
        else:
            raise InputError(
                f"lora_modules has {shown(name)}: known are "
                f"{', '.join((*LORA_MODULES, *_LORA_ALIASES))}"
            )
    return tuple(name for name in LORA_MODULES if name in chosen)
