"""What an engine does not answer is declared, and nothing else is missing."""

from __future__ import annotations

from pathlib import Path

from driftline.tables._engines import ENGINES as TABLE_ENGINES
from support.engines import ENGINES, GAPS, QUESTIONS


def test_every_gap_is_of_a_known_question_and_engine_and_has_a_reason() -> None:
    for (question, engine), reason in GAPS.items():
        assert question in QUESTIONS
        assert engine in ENGINES
        assert reason


def test_every_question_is_asked_of_two_engines_and_of_spark() -> None:
    for question in QUESTIONS:
        asked = [engine for engine in ENGINES if (question, engine) not in GAPS]
        assert len(asked) >= 2, question
        assert "spark" in asked, question


def test_every_question_has_its_tests() -> None:
    texts = [file.read_text() for file in Path(__file__).parent.glob("test_*.py")]
    for question in QUESTIONS:
        assert any(f'engines_for("{question}")' in text for text in texts), question


def test_the_engines_are_those_of_the_product() -> None:
    assert set(TABLE_ENGINES) < set(ENGINES)
