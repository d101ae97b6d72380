"""From encoded bytes to pixels, safely; small pictures and figures of them."""
