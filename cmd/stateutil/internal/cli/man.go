package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/manual"
)

func newMan(g *global) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		GroupID: groupShell,
		Short:   "Write a man page for every command into a folder",
		Long: `Write stateutil.1 and a page for every command, stateutil-COMMAND.1, into a
folder, which is made if it is not there. The same pages are in docs/man.`,
		Example: `  stateutil man /usr/local/share/man/man1
  stateutil man /tmp/m && man /tmp/m/stateutil-verify.1`,
		Args:              exactly(1, "folder"),
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, a []string) error {
			if err := os.MkdirAll(a[0], 0o777); err != nil {
				return err
			}
			pages := manual.Commands(cmd.Root())
			for _, c := range pages {
				if err := os.WriteFile(filepath.Join(a[0], manual.ManName(c)), manual.Man(c), 0o666); err != nil {
					return err
				}
			}
			return g.printf(g.env.Out, "%d pages in %s\n", len(pages), a[0])
		},
	}
}
