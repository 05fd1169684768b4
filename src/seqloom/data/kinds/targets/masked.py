"""No target of its own: tokens of the text are hidden when a batch is fed, and the model says them."""

from typing import TYPE_CHECKING, Any

from seqloom.data.kinds.kind import Columns, TargetKind

if TYPE_CHECKING:
    from torch import Tensor


class MaskedTarget(TargetKind):
    """No column: what is hidden is drawn later. In a batch: [B,T] the tokens; of words all pieces are the inputs."""

    name = "masked"
    task = "masked"
    exclusive = True
    is_running = True

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """The tokens twice."""
        from seqloom.nn.types import Subwords

        tokens = inputs.pieces if isinstance(inputs, Subwords) else inputs
        return tokens, tokens.values
