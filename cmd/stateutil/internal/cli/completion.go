package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/blobstore"
)

func newCompletion(g *global) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:     "completion SHELL",
		GroupID: groupShell,
		Short:   "Print a script that completes commands, flags and URLs in a shell",
		Long: `Print the completion script for bash, zsh, fish or powershell. It completes
commands, flags and their values, local paths, and the folders of stores: the
store is asked for one listing, for at most two seconds, with the credentials
that the environment or the configuration gives. From the "?" of a URL on there
is nothing to complete, since a shell only adds to a word: an endpoint that is
wanted while completing belongs into the environment or the configuration.`,
		Example: `  source <(stateutil completion bash)
  stateutil completion bash > /etc/bash_completion.d/stateutil
  stateutil completion zsh > "${fpath[1]}/_stateutil"
  stateutil completion fish > ~/.config/fish/completions/stateutil.fish
  stateutil completion powershell | Out-String | Invoke-Expression`,
		Args: exactly(1, "shell"),
		// The script must come even where the configuration is broken.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		ValidArgs:         shells,
		RunE: func(cmd *cobra.Command, a []string) error {
			root, out := cmd.Root(), g.env.Out
			switch a[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return usage("no completion for %q: bash, zsh, fish or powershell", a[0])
		},
	}
}

// Limits of completing URLs: a shell waits while the user looks at the cursor.
const (
	completeTime  = 2 * time.Second
	completeNames = 200
)

// completeURL completes a local path or a URL by what lies there.
func (g *global) completeURL(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	if err := g.setup(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	// OLD=NEW of --map: each side is a URL of its own.
	head := ""
	if i := strings.LastIndex(word, "="); i >= 0 && !strings.Contains(word, "?") {
		head, word = word[:i+1], word[i+1:]
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	var found []string
	if path, ok := localPath(word); ok {
		found = completeLocal(word, path)
		for _, s := range blobstore.Schemes() {
			if url := s + "://"; word != "" && s != "file" && strings.HasPrefix(url, word) {
				found = append(found, url)
			}
		}
	} else if !strings.Contains(word, "?") { // a shell cannot put anything before the parameters
		done := make(chan []string, 1)
		// In a goroutine: a store that hangs beyond its context must not hang the shell.
		go func() { done <- g.completeStore(ctx, word) }()
		select {
		case found = <-done:
		case <-ctx.Done():
		}
	}
	for i := range found {
		found[i] = head + found[i]
	}
	return found, directive
}

// localPath is the path on this machine that a word means.
func localPath(word string) (string, bool) {
	if rest, ok := strings.CutPrefix(word, "file:"); ok {
		for strings.HasPrefix(rest, "//") {
			rest = rest[1:]
		}
		return rest, true
	}
	if strings.Contains(word, "://") {
		return "", false
	}
	if rest, ok := strings.CutPrefix(word, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return home + "/" + rest, true
		}
	}
	return word, true
}

// completeLocal lists what begins with path and spells it as the word does.
func completeLocal(word, path string) []string {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	spelled := strings.TrimSuffix(word, base)
	var out []string
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && !strings.HasPrefix(base, ".") {
			continue
		}
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.IsDir() {
			name += "/"
		}
		if out = append(out, spelled+name); len(out) == completeNames {
			break
		}
	}
	return out
}

// completeStore lists the folder of a store that a URL stands in.
func (g *global) completeStore(ctx context.Context, word string) []string {
	cut := strings.LastIndex(word, "/") + 1
	scheme := strings.Index(word, "://") + len("://")
	if cut <= scheme { // the bucket is not complete yet: no store to ask
		return nil
	}
	loc, err := blobstore.Parse(word[:cut])
	if err != nil {
		return nil
	}
	store, name, err := g.stores().Resolve(ctx, loc)
	if err != nil {
		return nil
	}
	prefix := word[cut:]
	if name != "" {
		prefix = name + "/" + prefix
	}
	var out []string
	for info, err := range store.List(ctx, &blobstore.ListOptions{Prefix: prefix, Delimiter: true}) {
		if err != nil || len(out) == completeNames {
			break
		}
		rest := info.Name
		if name != "" {
			rest = strings.TrimPrefix(rest, name+"/")
		}
		if rest != "" && !slices.Contains(out, word[:cut]+rest) {
			out = append(out, word[:cut]+rest)
		}
	}
	return out
}
