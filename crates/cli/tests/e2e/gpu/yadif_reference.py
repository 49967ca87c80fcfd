"""Deinterlaces frames by the formula of FFmpeg's yadif_cuda (top field first, one frame for each) and compares.

usage: yadif_reference.py SOURCE MADE WIDTH HEIGHT, both yuv420p
"""
import sys
import numpy as np

source, made, width, height = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def planes(path):
    data, size = np.fromfile(path, np.uint8).astype(int), width * height * 3 // 2
    frames = []
    for at in range(0, len(data), size):
        frame, shapes = data[at:at + size], [(height, width)] + 2 * [(height // 2, width // 2)]
        ends = np.cumsum([h * w for h, w in shapes])
        frames.append([part.reshape(shape) for part, shape in zip(np.split(frame, ends[:-1]), shapes)])
    return frames


def half(value):
    """Division by two towards zero, as in C."""
    return np.where(value < 0, -(-value // 2), value // 2)


def yadif(previous, current, following, parity):
    rows, columns = np.indices(current.shape)

    def at(plane, dx, dy):
        """A texture fetch that clamps."""
        return plane[np.clip(rows + dy, 0, plane.shape[0] - 1), np.clip(columns + dx, 0, plane.shape[1] - 1)]

    up = {dx: at(current, dx, -1) for dx in range(-3, 4)}
    down = {dx: at(current, dx, 1) for dx in range(-3, 4)}

    def score(shift):
        return sum(abs(up[dx + shift] - down[dx - shift]) for dx in (-1, 0, 1))

    prediction, best = half(up[0] + down[0]), score(0)
    for sign in (-1, 1):
        near = score(sign)
        better = near < best
        prediction, best = np.where(better, half(up[sign] + down[-sign]), prediction), np.where(better, near, best)
        far = score(2 * sign)
        better &= far < best
        prediction, best = np.where(better, half(up[2 * sign] + down[-2 * sign]), prediction), np.where(better, far, best)
    # The first field of a frame: between the field before it and its own.
    before, after = previous, current
    p0 = half(at(before, 0, -2) + at(after, 0, -2))
    p1, p3 = up[0], down[0]
    p2 = half(at(before, 0, 0) + at(after, 0, 0))
    p4 = half(at(before, 0, 2) + at(after, 0, 2))
    change = np.maximum.reduce([
        abs(at(before, 0, 0) - at(after, 0, 0)),
        half(abs(at(previous, 0, -1) - p1) + abs(at(previous, 0, 1) - p3)),
        half(abs(at(following, 0, -1) - p1) + abs(at(following, 0, 1) - p3)),
    ])
    high = np.maximum.reduce([p2 - p3, p2 - p1, np.minimum(p0 - p1, p4 - p3)])
    low = np.minimum.reduce([p2 - p3, p2 - p1, np.maximum(p0 - p1, p4 - p3)])
    change = np.maximum.reduce([change, low, -high])
    prediction = np.clip(prediction, p2 - change, p2 + change)
    return np.where(rows % 2 == parity, current, prediction)


frames, results = planes(source), planes(made)
assert len(frames) == len(results), (len(frames), len(results))
for index, result in enumerate(results):
    near = [frames[max(index - 1, 0)], frames[index], frames[min(index + 1, len(frames) - 1)]]
    for plane in range(3):
        expected = yadif(*[frame[plane] for frame in near], parity=0)
        wrong = np.argwhere(expected != result[plane])
        assert len(wrong) == 0, f"frame {index}, plane {plane}: {len(wrong)} of {expected.size}, first at {wrong[0]}"
print(len(results), "frames are what the formula gives")
