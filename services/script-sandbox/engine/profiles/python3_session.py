"""The driver of a session: runs cells in one namespace. It follows `python3_results.py` in one program."""

import ast
import linecache
import traceback

JOB, SHOWN = 5, 50
# `inspect.CO_COROUTINE`, without the modules that it loads.
COROUTINE = 0x80
HINTS = {
    "!": "subprocess.run(..., shell=True) runs a command",
    "%": "there are no magics such as %pip, %timeit and %%bash",
    "?": "help(name) describes a name",
}


def main():
    here = globals()
    keep = sys.modules["__main__"]
    module = types.ModuleType("__main__")
    names = module.__dict__
    sys.modules["__main__"] = module
    own = os.getpid()
    running = False
    loop = awaiting = None
    INTERRUPT = object()
    results = Results()
    # Modules of the session have it as well, as in Jupyter.
    builtins.display = results.display
    sys.meta_path.insert(0, Hook(results))
    for descriptor in (RESULT, JOB):
        os.set_inheritable(descriptor, False)

    def interrupted(number, frame):
        # Between two cells, and while a result is reported, there is nothing to interrupt.
        if not running:
            return
        while frame is not None and frame.f_globals is not names:
            frame = frame.f_back
        if frame is None and awaiting is not None:
            # An error in the middle of the event loop would lose the steps of its tasks.
            loop.call_soon_threadsafe(awaiting.cancel, INTERRUPT)
            return
        raise KeyboardInterrupt

    def receive(size):
        parts = b""
        while len(parts) < size:
            part = os.read(JOB, size - len(parts))
            if not part:
                os._exit(0)
            parts += part
        return parts

    def attempt(work):
        """Runs what may be interrupted; gives its result and what it raised."""
        nonlocal running
        try:
            try:
                running = True
                return work(), None
            finally:
                running = False
        except BaseException as error:
            return None, error

    def cut(text, limit):
        data = text.encode("utf-8", "backslashreplace")
        kept = data[:limit].decode("utf-8", "ignore")
        return kept, len(data) - len(kept.encode())

    def settle(coroutine):
        """Waits for a cell that awaits. An interrupt ends the cell where it waits, and not the event loop."""
        nonlocal loop, awaiting
        import asyncio

        if loop is None:
            loop = asyncio.new_event_loop()
        awaiting = task = loop.create_task(coroutine)
        try:
            while not task.done():
                try:
                    loop.run_until_complete(asyncio.wait([task]))
                except BaseException:
                    # Raised by the cell, it is the task's as well; raised by a callback, it ends the cell.
                    task.cancel(INTERRUPT)
        finally:
            awaiting = None
        try:
            return task.result()
        except asyncio.CancelledError as error:
            if error.args != (INTERRUPT,):
                raise
            raise KeyboardInterrupt().with_traceback(error.__traceback__) from None

    def awaits(code):
        return code.co_flags & COROUTINE

    def evaluate(parts):
        """Evaluates the parts of a cell in turn, beneath one event loop if any of them awaits."""
        async def waiting():
            for code in parts:
                value = eval(code, names)
                value = await value if awaits(code) else value
            return value

        return settle(waiting()) if any(map(awaits, parts)) else [eval(code, names) for code in parts][-1]

    def explain(error, source):
        """Adds to the error of a line that only IPython reads what a session has instead."""
        lines = source.splitlines()
        if not error.lineno or not error.offset or error.lineno > len(lines):
            return
        line, at = lines[error.lineno - 1], error.offset - 1
        hint = HINTS.get(line[at : at + 1])
        if hint and (line[at] == "?" or line[:at].rstrip()[-1:] in ("", "=")):
            error.msg = f"{error.msg}: a session reads Python, not IPython; {hint}"

    def is_quiet(source, expression):
        """Whether a semicolon follows the last expression, by which its value is no result, as in Jupyter."""
        lines = source.encode().splitlines()[expression.end_lineno - 1 :]
        rest = b"\n".join([lines[0][expression.end_col_offset :], *lines[1:]])
        return rest.lstrip(b" \t\n\\)").startswith(b";")

    def execute(source, file):
        try:
            tree = compile(source, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        except SyntaxError as error:
            explain(error, source)
            raise
        parts, origin = [(tree, "exec")], "expression"
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            origin = None if is_quiet(source, tree.body[-1].value) else origin
            parts.append((ast.Expression(tree.body.pop().value), "eval"))
        wait = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        value = evaluate([compile(part, file, mode, wait, dont_inherit=True) for part, mode in parts])
        results.figures()
        if value is None:
            return None
        names["_"] = value
        return results.show(origin, value)

    def frame_of(file, line, column, function, source):
        cell = file[6:-1] if file.startswith("<cell ") and file[6:-1].isdecimal() else "0"
        return {
            "file": cut(file, LONG)[0],
            "cell": int(cell),
            "line": line or 0,
            "column": column or 0,
            "function": "" if function == "<module>" else cut(function, LONG)[0],
            "source": cut((source or "").strip(), LONG)[0],
        }

    def describe(error, limit):
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals is here:
            trace = trace.tb_next
        error.__traceback__ = each = trace
        while each is not None and each.tb_next is not None:
            if each.tb_next.tb_frame.f_globals is here:
                each.tb_next = None
            each = each.tb_next
        summary = traceback.TracebackException(type(error), error, trace)
        frames = []
        for each in summary.stack:
            column = getattr(each, "colno", None)
            column = None if column is None else column + 1
            frames.append(frame_of(each.filename, each.lineno, column, each.name, each.line))
        if isinstance(error, SyntaxError):
            frames.append(frame_of(error.filename or "", error.lineno, error.offset, "", error.text))
        omitted = max(0, len(frames) - 2 * SHOWN)
        if omitted:
            frames[SHOWN:-SHOWN] = []
        try:
            message = str(error.msg if isinstance(error, SyntaxError) else error)
        except Exception:
            message = "<exception str() failed>"
        return {
            "type": type(error).__qualname__,
            "message": cut(message, limit)[0],
            "frames": frames,
            "omitted": omitted,
            "text": cut("".join(summary.format()), limit)[0],
        }

    def run(cell, source, limit):
        file = f"<cell {cell}>"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        results.begin(cell)
        shown, error = attempt(lambda: execute(source, file))
        if os.getpid() != own:
            # A fork that came back here is the cell's own; only one may continue with the next cell.
            attempt(flush)
            os._exit(0 if error is None else 1)
        done = {"cell": cell, "outcome": "ok"}
        if error is not None:
            done["outcome"] = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
            attempt(lambda: results.figures(is_drawn=done["outcome"] == "error"))
        attempt(flush)
        if error is not None:
            described, worse = attempt(lambda: describe(error, limit))
            if worse is not None:
                described = {"type": type(error).__qualname__, "message": "the error cannot be shown"}
            done["error"] = described
        elif shown is not None:
            text, truncated = cut(shown, limit)
            done["value"] = {"text": text, "truncated": truncated}
        # Frames refer to the names of a cell, which may be large.
        error = None
        done["dropped"] = results.end()
        tell({"done": done})

    signal.signal(signal.SIGINT, interrupted)
    tell({"ready": {}})
    while True:
        (size,) = struct.unpack("<I", receive(4))
        order = json.loads(receive(size))
        signal.signal(signal.SIGINT, interrupted)
        run(order["cell"], order["source"], order["limit"])


main()
