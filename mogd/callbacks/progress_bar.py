"""ProgressBar: one bar for the epochs of a fit, on standard error."""

from __future__ import annotations

from mogd.callbacks.base import Callback, Entry, Run

SHOWN = ("loss", "shrinkage")  # of an entry


class ProgressBar(Callback):
    """A bar with the loss and, where there is one, the shrinkage."""

    observer = True

    def start(self, run: Run) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True))
        self.task = self.bar.add_task(type(run.method).__name__, total=run.settings.epochs, note="")
        self.bar.start()

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        note = "  ".join(f"{name} {entry[name]:.4f}" for name in SHOWN if name in entry)
        self.bar.update(self.task, completed=entry["epoch"], note=note)

    def end(self, run: Run) -> None:
        self.bar.stop()
