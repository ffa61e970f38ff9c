"""Finds the loops of a kernel, and the minimum cost of one round of a loop.

A loop's code holds more than one round executes, because rare cases are in it too. Of all paths from its head back to
it that load at least the given bytes from memory, and have the operations that ordinary data need, the one with the
fewest instructions is the minimum cost of a round. What it bypasses (`whole` counts everything once) is work for data
that are not ordinary.
"""
import collections
import heapq

import cubin

ENDS = (cubin.EXIT, cubin.RETURN)
GLOBAL_LOADS = (0x180, 0x181)


class Block:
    __slots__ = ("first", "last", "next", "bytes", "widest")


class Graph:
    """Basic blocks of a kernel and of the functions in its section."""

    def __init__(self, kernel):
        self.kernel = kernel
        code = kernel.instructions
        starts = {0} | {at // 16 for at, _ in kernel.functions}
        for i, instruction in enumerate(code):
            if instruction.operation in (cubin.BRANCH, cubin.CALL, *ENDS):
                starts.add(i + 1)
            if instruction.operation in (cubin.BRANCH, cubin.CALL):
                starts.add(instruction.target // 16)
        self.entries = {0} | {at // 16 for at, _ in kernel.functions}
        ordered = sorted(s for s in starts if 0 <= s < len(code))
        self.blocks = {}
        for first, end in zip(ordered, ordered[1:] + [len(code)]):
            self.blocks[first] = self._block(code, first, end)

    def _block(self, code, first, end):
        block = Block()
        block.first, block.last = first, end
        last = code[end - 1]
        block.next = []
        if last.operation == cubin.BRANCH and not last.when_apart:
            block.next.append(last.target // 16)
        if last.operation == cubin.CALL and last.target // 16 not in self.entries:
            block.next.append(last.target // 16)  # within the function: a jump
        falls = not (last.operation == cubin.BRANCH and last.always) and \
            not (last.operation in ENDS and not last.guarded)
        if falls and end < len(code):
            block.next.append(end)
        loads = [code[i].width for i in range(first, end) if code[i].operation in GLOBAL_LOADS]
        block.bytes, block.widest = sum(loads), max(loads, default=0)
        return block

    def order(self):
        """Returns blocks in reverse postorder from all entries."""
        seen, out = set(), []
        for entry in sorted(self.entries):
            stack = [(entry, iter(self.blocks[entry].next))] if entry not in seen else []
            seen.add(entry)
            while stack:
                at, rest = stack[-1]
                step = next((n for n in rest if n in self.blocks and n not in seen), None)
                if step is None:
                    out.append(at)
                    stack.pop()
                else:
                    seen.add(step)
                    stack.append((step, iter(self.blocks[step].next)))
        return out[::-1]

    def before(self):
        found = collections.defaultdict(list)
        for first, block in self.blocks.items():
            for n in block.next:
                found[n].append(first)
        return found


def _dominators(graph, order, before):
    """Returns the immediate dominator of each block (Cooper, Harvey, Kennedy 2001)."""
    place = {b: i for i, b in enumerate(order)}
    nearest = {e: e for e in graph.entries}

    def common(a, b):
        while a != b:
            while place[a] > place[b]:
                if nearest[a] == a:
                    return b if nearest[b] == b else a
                a = nearest[a]
            while place[b] > place[a]:
                if nearest[b] == b:
                    return a
                b = nearest[b]
        return a

    changed = True
    while changed:
        changed = False
        for b in order:
            if b in graph.entries:
                continue
            known = [p for p in before[b] if p in nearest]
            if not known:
                continue
            new = known[0]
            for p in known[1:]:
                new = common(new, p)
            if nearest.get(b) != new:
                nearest[b] = new
                changed = True
    return nearest


class Loop:
    """`head` and `blocks`: by the number of their first instruction."""

    def __init__(self, graph, head, blocks):
        self.graph, self.head, self.blocks = graph, head, blocks

    @property
    def function(self):
        return self.graph.kernel.function_at(16 * self.head)

    @property
    def widest(self):
        return max(self.graph.blocks[b].widest for b in self.blocks)

    @property
    def whole(self):
        return sum(self.graph.blocks[b].last - b for b in self.blocks)

    def way(self, load_bytes, needs=()):
        """Returns the instructions of the cheapest round that loads `load_bytes` per thread and has the operations of
        `needs`, [(numbers, count)]. None if no round does. A block may be passed twice, like an inner loop's."""
        code, blocks = self.graph.kernel.instructions, self.graph.blocks
        goal = (load_bytes, *(count for _, count in needs))
        gives = {b: (blocks[b].bytes, *(sum(i.operation in which for i in code[b:blocks[b].last])
                                        for which, _ in needs)) for b in self.blocks}
        start = (self.head, (0,) * len(goal))
        queue, came, best, number = [(0, 0, start)], {start: None}, {start: 0}, 0
        while queue:
            cost, _, state = heapq.heappop(queue)
            if best[state] < cost:
                continue
            at, had = state
            has = tuple(min(g, h + more) for g, h, more in zip(goal, had, gives[at]))
            for n in blocks[at].next:
                if n == self.head and has == goal:
                    return self._walk(came, state)
                if n not in self.blocks or n == self.head:
                    continue
                total = cost + blocks[at].last - at
                if total < best.get((n, has), 1 << 60):
                    best[n, has], came[n, has] = total, state
                    number += 1
                    heapq.heappush(queue, (total, number, (n, has)))
        return None

    def _walk(self, came, state):
        blocks = []
        while state is not None:
            blocks.append(state[0])
            state = came[state]
        code = self.graph.kernel.instructions
        return [i for b in blocks[::-1] for i in code[b:self.graph.blocks[b].last]]


def loops(kernel):
    """Returns [Loop], by address."""
    graph = Graph(kernel)
    order, before = graph.order(), graph.before()
    nearest = _dominators(graph, order, before)

    def passes(block, head):
        while block != head and nearest[block] != block:
            block = nearest[block]
        return block == head

    bodies = collections.defaultdict(set)
    for latch in order:
        for head in graph.blocks[latch].next:
            if head not in nearest or not passes(latch, head):
                continue
            body, stack = bodies[head], [latch]
            body.add(head)
            while stack:
                b = stack.pop()
                if b not in body:
                    body.add(b)
                    stack += before[b]
    return [Loop(graph, head, body) for head, body in sorted(bodies.items())]


def under_way(way):
    """Returns the maximum bytes of input that a thread has requested and not yet received, in a round after others.
    Input comes by the widest loads; narrower ones are of tables. A load's barrier is set until an instruction waits for
    it; loads may share one."""
    widest = max((i.width for i in way if i.operation in GLOBAL_LOADS), default=0)
    waiting, most = {}, 0
    for instruction in [*way, *way]:
        for barrier in [b for b in waiting if instruction.waits >> b & 1]:
            del waiting[barrier]
        if instruction.operation in GLOBAL_LOADS and instruction.width == widest:
            waiting[instruction.sets] = waiting.get(instruction.sets, 0) + instruction.width
        most = max(most, sum(waiting.values()))
    return most
