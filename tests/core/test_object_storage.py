"""Every verb against an S3 emulator, also one that fails at random: who wins is decided once (storage §2-4)."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from driftline.core import _locks as leases, _objects as objects, _parts as part_folders
from driftline.core._files import atomic_write, open_bytes, read_lines, size_of, write_atomically
from driftline.core._objects import ObjectPath, location
from driftline.errors import InputError, LockedError, OptionError, StorageError
from support.processes import PATIENCE, wait_until
from support.s3 import unreliable

pytest.importorskip("obstore", reason="needs obstore, the extra cloud")


@pytest.fixture
def root(s3: tuple[Any, dict[str, str]], request: pytest.FixtureRequest) -> ObjectPath:
    return ObjectPath(f"s3://data/{request.node.name}")


def test_create_and_replace_have_one_winner(root: ObjectPath) -> None:
    first = objects.create(f"{root}/x", b"1")
    assert first is not None
    assert objects.create(f"{root}/x", b"2") is None
    second = objects.replace(first, b"3")
    assert second is not None
    assert objects.replace(first, b"4") is None
    assert objects.read_object(f"{root}/x")[0] == b"3"
    objects.delete_object(f"{root}/x")
    objects.delete_object(f"{root}/x")
    assert objects.replace(second, b"5") is None, "what is gone is not replaced"
    assert not (root / "x").exists()


def test_a_store_that_fails_at_random_still_has_one_winner(s3: tuple[Any, dict[str, str]], root: ObjectPath) -> None:
    """Eight writers count up by If-Match: no two are told that they wrote the same number."""
    told = []
    with unreliable(s3[1], 5, faults=0.12):
        while objects.create(root.url, b"0 nobody") is None:
            pass

        def count_up(writer: int) -> None:
            for turn in range(4):
                while True:
                    data, version = _patiently(lambda: objects.read_object(root.url))
                    number = int(data.split()[0]) + 1
                    if _patiently(lambda v=version, n=number, t=turn: objects.replace(v, b"%d %d %d" % (n, writer, t))):
                        told.append(number)
                        break

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(count_up, range(8)))
    # A writer whose answer was lost, and whose number was counted on before it looked, does not know and tries again.
    assert len(told) == len(set(told)) == 32
    assert max(told) <= int(objects.read_object(root.url)[0].split()[0])


def _patiently(act: Any) -> Any:
    while True:
        try:
            return act()
        except InputError as error:
            if error.code != "store_unreachable":
                raise


def test_an_upload_is_whole_or_absent(
    s3: tuple[Any, dict[str, str]], root: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_PART_BYTES", 5 << 20)  # the least that S3 takes
    client, _ = s3
    place = root / "big %20?.bin"
    with contextlib.suppress(ZeroDivisionError), atomic_write(place) as out:
        out.write(bytes(12 << 20))
        raise ZeroDivisionError
    assert not place.exists()
    assert "Uploads" not in client.list_multipart_uploads(Bucket="data"), "its parts were given up"
    with atomic_write(place) as out:
        for number in range(12):
            out.write(b"%06d\n" % number * 150_000)
    lines = list(read_lines(place))
    assert len(lines) == 12 * 150_000
    assert (lines[0], lines[-1], size_of(place)) == (b"000000", b"000011", 12_600_000)


def test_outputs_that_cannot_be_are_refused(root: ObjectPath) -> None:
    refused = {
        "hdfs://name/x": "unsupported_address",
        "ftp://host/x": "unsupported_address",
        f"{root}/": "is_a_directory",
        f"{root}//x": "invalid_name",
        "s3://no-such-bucket/x": "not_found",
    }
    for name, code in refused.items():
        with pytest.raises((InputError, OptionError)) as caught:
            write_atomically(name, b"x")
        assert caught.value.code == code, name
    for inputs in ([f"{root}/a"], [f"{root}/"], [f"{root}/?"]):
        with pytest.raises(OptionError, match="one of the inputs"), atomic_write(f"{root}/a", inputs):
            pass
    with open_bytes(Path(__file__)) as stream:
        assert stream.read(3) == b'"""'


def test_a_lease_is_renewed_lost_and_taken_over(root: ObjectPath, monkeypatch: pytest.MonkeyPatch) -> None:
    place = root / "lock"
    with leases.lease(place, scope="shop", seconds=3.0) as held:
        with pytest.raises(LockedError, match="held by process"), leases.lease(place, scope="shop"):
            pass
        wait_until(lambda: json.loads(place.read_bytes())["renewals"] >= 2)
        held.check()
        # Somebody whose clock runs ahead took it: the holder notices at its next renewal, and ends.
        place.write_bytes(b'{"lockId": "other"}')
        assert held._lost.wait(PATIENCE)
        with pytest.raises(LockedError) as caught:
            held.check()
        assert caught.value.code == "lease_lost"
    assert place.read_bytes() == b'{"lockId": "other"}', "what is not held is not released"
    with leases.lease(place, scope="shop"):
        pass
    assert json.loads(place.read_bytes())["expires"] == 0.0
    # A killed process of this machine leaves a lease that has not expired.
    place.write_bytes(leases._new_record("shop", 60).to_json().replace(b'"pid": ', b'"pid": 99999'))
    with leases.lease(place, scope="shop"):
        pass
    monkeypatch.setattr(leases, "_machine", lambda: "another")
    place.write_bytes(json.dumps({"pid": 1, "machine": "elsewhere", "expires": time.time() + 60}).encode())
    with pytest.raises(LockedError), leases.lease(place, scope="shop"):
        pass


def test_of_many_that_want_a_lease_one_at_a_time_has_it(s3: tuple[Any, dict[str, str]], root: ObjectPath) -> None:
    inside, most = [], []
    guard = threading.Lock()

    def work(number: int) -> None:
        with leases.lease(root / "lock", scope="s", wait_seconds=60):
            with guard:
                inside.append(number)
                most.append(len(inside))
            time.sleep(0.02)
            with guard:
                inside.remove(number)

    with unreliable(s3[1], 6, faults=0.05), ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert max(most) == 1
    assert len(most) == 4


@pytest.mark.parametrize("kind", ["local", "store"])
def test_a_folder_of_parts_changes_in_one_step(kind: str, root: ObjectPath, tmp_path: Path) -> None:
    folder = location(str(tmp_path / "out") if kind == "local" else f"{root}/out")
    lines = [b'{"n":%d}\n' % number for number in range(1000)]
    writer = part_folders.PartWriter(folder, part_bytes=2000)
    for line in lines:
        writer.write(line)
    assert part_folders.read_manifest(folder) is None
    parts = writer.commit()
    assert len(parts) > 4
    assert list(part_folders.read_pieces(folder)) == lines
    assert all(piece.read_bytes().endswith(b"\n") for piece in part_folders.pieces(folder))

    late, early = part_folders.PartWriter(folder), part_folders.PartWriter(folder)
    late.write(b"late\n")
    early.write(b"early\n")
    early.commit()
    with pytest.raises(StorageError) as caught:
        late.commit()
    assert caught.value.code == "output_changed"
    late.discard()
    assert list(part_folders.read_pieces(folder)) == [b"early\n"]
    part_folders.sweep(folder, {part.name for part in part_folders.read_manifest(folder) or ()}, seconds=-1)
    left = folder.below() if isinstance(folder, ObjectPath) else list(folder.iterdir())
    assert len(left) == 2, "a part and the manifest"
    (folder / part_folders.MANIFEST).write_bytes(b"{")
    with pytest.raises(InputError) as damaged:
        part_folders.pieces(folder)
    assert damaged.value.code == "damaged_manifest"
