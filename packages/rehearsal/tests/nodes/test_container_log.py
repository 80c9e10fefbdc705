from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gameday_rehearsal.nodes.container_log import Line, PrintedLog, TrainingLog


async def test_output_is_cut_into_lines_wherever_its_pieces_end(tmp_path: Path) -> None:
    log = PrintedLog(tmp_path / "log")
    for piece in (b"one\ntw", b"o\n", b"thr", b"ee"):
        log.feed(piece)
    assert [line.text for line in log.read(0)[0]] == ["one", "two"]
    log.close()
    lines, position = log.read(1)
    assert ([line.text for line in lines], position) == (["two", "three"], 3)


async def test_a_line_without_end_is_split_and_not_kept_for_ever(tmp_path: Path) -> None:
    log = PrintedLog(tmp_path / "log")
    log.feed(b"x" * 40_000)
    assert [len(line.text) for line in log.read(0)[0]] == [16_384, 16_384]


async def test_a_reader_is_woken_by_a_line_and_by_the_end(tmp_path: Path) -> None:
    log = PrintedLog(tmp_path / "log")
    seen: list[Line] = []

    async def follow() -> None:
        position = 0
        while not log.closed:
            await log.grown()
            lines, position = log.read(position)
            seen.extend(lines)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    log.feed(b"one\n")
    await asyncio.sleep(0)
    assert [line.text for line in seen] == ["one"]
    log.close()
    await asyncio.wait_for(following, 5)


def test_a_training_prints_now_and_then_and_its_loss_falls() -> None:
    log = TrainingLog("ml/train/main", datetime.now(UTC) - timedelta(minutes=10))
    lines, position = log.read(0)
    assert position == len(lines) == 120
    losses = [float(line.text.split()[-1]) for line in lines]
    assert lines[0].text.startswith("step 12 loss ")
    assert losses[0] > losses[-1] > 1
    assert log.read(0)[0] == lines, "read again it says the same"
    log.close()
    assert log.closed


def test_a_training_goes_on_from_the_last_checkpoint_of_the_one_before() -> None:
    now = datetime.now(UTC)
    first = TrainingLog("ml/train/main", now - timedelta(seconds=60))
    checkpoint = first.last_checkpoint()  # 144 steps
    later = TrainingLog("ml/other/main", now - timedelta(seconds=6), checkpoint)
    assert checkpoint == 120
    assert later.read(0)[0][0].text.startswith("step 132 loss")


def test_a_training_goes_at_the_pace_of_its_slowest_gpu_and_the_past_stays() -> None:
    started = datetime.now(UTC) - timedelta(seconds=100)
    log = TrainingLog("ml/train/main", started)
    at, worked = 0.0, [0.0, 0.0]
    log.compute_on(lambda: (at, tuple(worked)))
    before = log.read(0)[0]
    at, worked = 10.0, [10.0, 6.0]  # from the start to the first reading, by the model's own time
    slow = log.read(0)[0]
    assert len(slow) == len(before) == 20
    assert [line.text.split()[1] for line in before[:2]] == ["12", "24"]
    assert [line.text.split()[1] for line in slow[:2]] == ["7", "14"], "2.4 steps a second at six tenths of the pace"
    at, worked = 20.0, [20.0, 16.0]
    assert log.read(0)[0][:20] == slow
    log.close()
    assert log.read(0)[0][:20] == slow
