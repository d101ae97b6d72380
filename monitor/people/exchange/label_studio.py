"""Label Studio: open questions as tasks with predictions, annotations back as answers.

The project there needs one image and one set of choices:

    <View>
      <Image name="image" value="$image"/>
      <Choices name="class" toName="image" choice="single" showInline="true">…</Choices>
    </View>

``interface`` writes it with the classes of today. An annotation that was cancelled is a skip:
its question stays open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from xml.sax.saxutils import quoteattr

from monitor.people.answer_questions import Said, Word
from monitor.people.errors import BadAnswer, BadFile
from monitor.people.exchange.parsed_answers import Parsed, Problem, question_number
from monitor.people.exchange.question_records import QuestionRecord

FROM, TO = "class", "image"
_WORDS = {Word.CANNOT_TELL: "cannot tell", Word.BAD_IMAGE: "bad image"}


def interface(classes: Iterable[str]) -> str:
    """The labelling interface of the project, as Label Studio's settings take it."""
    choices = "\n".join(
        f"    <Choice value={quoteattr(name)}/>" for name in [*classes, *_WORDS.values()]
    )
    return (
        f'<View>\n  <Image name="{TO}" value="$image"/>\n'
        f'  <Choices name="{FROM}" toName="{TO}" choice="single" showInline="true">\n'
        f"{choices}\n  </Choices>\n</View>\n"
    )


def to_tasks(questions: Iterable[QuestionRecord], *, base_url: str) -> list[dict[str, Any]]:
    """One task each; the image is the desk's picture, by its address."""
    return [_task(question, base_url.rstrip("/")) for question in questions]


def _task(question: QuestionRecord, base_url: str) -> dict[str, Any]:
    thumbnail = question.question.thumbnail
    picture = f"{base_url}/thumbnails/{thumbnail}" if thumbnail else None
    task: dict[str, Any] = {
        "data": {**question.record(), "image": picture},
        "predictions": [],
    }
    if question.suggested is not None:
        task["predictions"] = [
            {
                "model_version": "conclad",
                "result": [
                    {
                        "from_name": FROM,
                        "to_name": TO,
                        "type": "choices",
                        "value": {"choices": [question.suggested]},
                    }
                ],
            }
        ]
    return task


def from_tasks(text: str) -> Parsed:
    """An export in Label Studio's JSON or JSON-MIN form."""
    try:
        tasks = json.loads(text)
    except ValueError as error:
        raise BadFile(f"not JSON ({error}); export the project as JSON") from None
    if not isinstance(tasks, list):
        raise BadFile("not a list of tasks; export the project as JSON")
    said: list[tuple[str, Said]] = []
    problems: list[Problem] = []
    left = 0
    for number, task in enumerate(tasks, start=1):
        where = f"task {number}"
        try:
            one = _said(task)
        except BadAnswer as error:
            problems.append(Problem(where, str(error)))
        else:
            left += one is None
            said += [] if one is None else [(where, one)]
    return Parsed(tuple(said), tuple(problems), left)


def _said(task: Any) -> Said | None:
    if not isinstance(task, Mapping):
        raise BadAnswer("not a task")
    if "annotations" not in task:
        return _minimal(task)
    data, annotations = task.get("data"), task["annotations"]
    if not isinstance(data, Mapping) or not isinstance(annotations, list):
        raise BadAnswer("not a task with data and annotations")
    question_id = _question_id(data)
    # The latest counts: Label Studio appends when somebody annotates again.
    for annotation in reversed(annotations):
        if not isinstance(annotation, Mapping):
            raise BadAnswer("an annotation is not a record")
        if annotation.get("was_cancelled"):
            return None
        results = annotation.get("result")
        for result in results if isinstance(results, list) else ():
            if isinstance(result, Mapping) and result.get("type") == "choices":
                value = result.get("value")
                return _chosen(
                    question_id, value.get("choices") if isinstance(value, Mapping) else 0
                )
    return None


def _minimal(task: Mapping[str, Any]) -> Said | None:
    """JSON-MIN has the data and the choice side by side; an unanswered task has no choice."""
    if "annotation_id" not in task:
        raise BadAnswer("not a task with annotations")
    choice = task.get(FROM)
    if choice is None or task.get("was_cancelled"):
        return None
    return _chosen(_question_id(task), [choice] if isinstance(choice, str) else choice)


def _chosen(question_id: int, choices: Any) -> Said | None:
    if isinstance(choices, Mapping):
        choices = choices.get("choices")
    if not isinstance(choices, list) or not all(isinstance(one, str) for one in choices):
        raise BadAnswer("choices: not a list of names")
    if not choices:
        return None
    if len(choices) > 1:
        raise BadAnswer(f"{len(choices)} choices; an image belongs to one class")
    for word, text in _WORDS.items():
        if choices[0] == text:
            return Said(question_id, word)
    return Said(question_id, Word.CLASS, choices[0])


def _question_id(data: Mapping[str, Any]) -> int:
    return question_number(data.get("question_id"), "data.question_id")
