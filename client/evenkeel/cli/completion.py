"""`evenkeel completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in your shell.

    \b
    Examples:
      eval "$(evenkeel completion bash)"                               # in ~/.bashrc
      eval "$(evenkeel completion zsh)"                                # in ~/.zshrc
      evenkeel completion fish > ~/.config/fish/completions/evenkeel.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "evenkeel", "_EVENKEEL_COMPLETE").source())
