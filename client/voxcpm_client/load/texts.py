"""What is said: ordinary sentences of different lengths, or those of a file."""

from __future__ import annotations

from pathlib import Path

SENTENCES = (
    "Good morning.",
    "The train to the coast leaves in ten minutes from platform four.",
    "Yes, I can help you with that.",
    "Please hold the line while I look for your order; this will take only a moment.",
    "Rain is expected in the afternoon.",
    "When the harbour froze that winter, the children walked to the island and were back before anybody missed them.",
    "Your table is ready.",
    "Turn left after the bridge, and then keep to the right until you see the old mill.",
    "What would you like to hear next?",
    "The library opens at nine, except on Sundays, when it stays closed all day.",
    "She counted the steps again, slowly, and this time there were more of them than there had been in the morning, "
    "although nobody had touched the stairs.",
    "That is all for today, thank you.",
)


def read_texts(file: Path) -> tuple[str, ...]:
    """The lines of a UTF-8 file that are not blank. Raises OSError, and ValueError when there are none."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{file}: the texts are not UTF-8") from None
    texts = tuple(line.strip() for line in lines if line.strip())
    if not texts:
        raise ValueError(f"{file}: no texts in it; one a line is expected")
    return texts
