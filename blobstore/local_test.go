package blobstore

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func openDirStore(t testing.TB, dir string, logger *slog.Logger) Store {
	t.Helper()
	s, err := Open(context.Background(), "file://"+dir+"?fsync=off", &Options{Logger: logger})
	require.NoError(t, err)
	return s
}

func listed(t testing.TB, s Store, o *ListOptions) []string {
	t.Helper()
	names := []string{}
	for i, err := range s.List(context.Background(), o) {
		require.NoError(t, err)
		names = append(names, i.Name)
	}
	return names
}

func temporaries(t testing.TB, s Store, prefix string) []string {
	t.Helper()
	names := []string{}
	for i, err := range s.(TemporaryLister).ListTemporary(context.Background(), prefix) {
		require.NoError(t, err)
		names = append(names, i.Name)
	}
	return names
}

func touch(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		p := filepath.Join(dir, filepath.FromSlash(n))
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o777))
		require.NoError(t, os.WriteFile(p, []byte(n), 0o666))
	}
}

func TestTemporaryNames(t *testing.T) {
	for _, n := range []string{"x", "a/b/c", strings.Repeat("n", 255)} {
		temp := TemporaryName(n)
		require.True(t, IsTemporaryName(temp), temp)
		require.Len(t, temp[strings.LastIndexByte(temp, '/')+1:], 40)
		require.NotEqual(t, temp, TemporaryName(n))
	}
	require.True(t, strings.HasPrefix(TemporaryName("a/b/c"), "a/b/"))
	for _, n := range []string{"", ".tidemark-.tmp", ".tidemark-ABCDEFGHIJKLMNOPQRSTUVWXY1.tmp", ".tidemark-ABCDEFGHIJKLMNOPQRSTUVWXYZ.tmp/x",
		".tidemark-abcdefghijklmnopqrstuvwxyz.tmp", "tidemark-ABCDEFGHIJKLMNOPQRSTUVWXYZ.tmp", ".tidemark-ABCDEFGHIJKLMNOPQRSTUVWXYZ.tmpx"} {
		require.False(t, IsTemporaryName(n), n)
	}
}

// The walk with room for a few names, so that directories take many passes, and
// by the portable reader, gives what a sorted list of all names gives.
func TestLocalWalkInLittleMemory(t *testing.T) {
	dir := t.TempDir()
	parts := []string{"a", "a-", "a.", "a b", "a0", "aa", "é", "B", "~", "shared", "shared-old", "shared0"}
	rnd := rand.New(rand.NewPCG(7, 7))
	var all []string
	for i := range 600 {
		n := ""
		for range rnd.IntN(3) {
			n += parts[rnd.IntN(len(parts))] + "/"
		}
		n += fmt.Sprintf("%s!%d", parts[rnd.IntN(len(parts))], i%97)
		all = append(all, n)
	}
	for i := range 500 {
		all = append(all, fmt.Sprintf("big/%x-%s", rnd.Uint64(), strings.Repeat("x", i%200)))
	}
	touch(t, dir, all...)
	slices.Sort(all)
	all = slices.Compact(all)
	model := NewMem()
	for _, n := range all {
		require.NoError(t, WriteAll(t.Context(), model, n, []byte(n), nil))
	}
	s := openDirStore(t, dir, nil)
	defer func(m int) { dirMemory = m }(dirMemory)
	for _, portable := range []bool{false, true} {
		usePortableDirs(portable)
		for _, memory := range []int{400, 3000, 20_000, 1 << 20} {
			dirMemory = memory
			require.Equal(t, all, listed(t, s, nil), "memory %d", memory)
			for range 30 {
				n := all[rnd.IntN(len(all))]
				m := all[rnd.IntN(len(all))]
				o := &ListOptions{Prefix: n[:rnd.IntN(len(n)+1)], StartAfter: m[:rnd.IntN(len(m)+1)], Delimiter: rnd.IntN(2) == 0}
				require.Equal(t, listed(t, model, o), listed(t, s, o), "%+v, memory %d", *o, memory)
			}
		}
	}
	usePortableDirs(false)
}

// A directory that changes during several passes loses none of the names that stay.
func TestLocalWalkOfChangingDirectory(t *testing.T) {
	dir := t.TempDir()
	var stay []string
	for i := range 2000 {
		touch(t, dir, fmt.Sprintf("go-%d", i))
		stay = append(stay, fmt.Sprintf("stay-%d", i))
	}
	touch(t, dir, stay...)
	slices.Sort(stay)
	defer func(m int) { dirMemory = m }(dirMemory)
	dirMemory = 4000
	s := openDirStore(t, dir, nil)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				os.Remove(filepath.Join(dir, fmt.Sprintf("go-%d", i%2000)))
				os.WriteFile(filepath.Join(dir, fmt.Sprintf("come-%d", i%500)), nil, 0o666)
			}
		}
	}()
	for range 5 {
		seen := map[string]int{}
		for i, err := range s.List(t.Context(), nil) {
			require.NoError(t, err)
			seen[i.Name]++
		}
		for _, n := range stay {
			require.Equal(t, 1, seen[n], n)
		}
		require.LessOrEqual(t, slices.Max(slices.Collect(maps.Values(seen))), 1)
	}
	close(stop)
	<-done
}

// A prefix and a start are found without walking what lies before.
func TestLocalListPrunes(t *testing.T) {
	if os.Geteuid() != 0 && runtime.GOOS == "windows" {
		t.Skip("needs directories that cannot be read")
	}
	dir := t.TempDir()
	touch(t, dir, "a/x", "b/x", "b/y", "c/x")
	s := openDirStore(t, dir, nil)
	asNobody(t, func() {
		for _, n := range []string{"a", "c"} {
			require.NoError(t, os.Chmod(filepath.Join(dir, n), 0))
		}
		require.Equal(t, []string{"b/x", "b/y"}, listed(t, s, &ListOptions{Prefix: "b/"}))
		require.Equal(t, []string{"b/x", "b/y"}, listed(t, s, &ListOptions{Prefix: "b"}))
		require.Equal(t, []string{"b/y"}, listed(t, s, &ListOptions{Prefix: "b/y"}))
		require.Equal(t, []string{"a/", "b/", "c/"}, listed(t, s, &ListOptions{Delimiter: true}))
		require.NoError(t, os.Chmod(filepath.Join(dir, "c"), 0o777))
		require.Equal(t, []string{"b/y", "c/x"}, listed(t, s, &ListOptions{StartAfter: "b/x"}))
		require.Equal(t, []string{"c/x"}, listed(t, s, &ListOptions{StartAfter: "b/z"}))
		// But what belongs to the listing is not left out silently.
		var last error
		for _, last = range s.List(t.Context(), nil) {
		}
		require.ErrorIs(t, last, ErrPermission)
		require.EqualError(t, last, "list file:"+filepath.ToSlash(dir)+"/a: access denied", "it says where")
		require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o777))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0))
		require.Equal(t, []string{"a/x", "b/x", "b/y", "c/x"}, listed(t, s, nil))
	}, dir)
}

func TestLocalPermission(t *testing.T) {
	dir := t.TempDir()
	touch(t, dir, "open/x", "closed/x", "read-only/x", "secret")
	s := openDirStore(t, dir, nil)
	ctx := t.Context()
	asNobody(t, func() {
		require.NoError(t, os.Chmod(filepath.Join(dir, "closed"), 0))
		require.NoError(t, os.Chmod(filepath.Join(dir, "read-only"), 0o555))
		require.NoError(t, os.Chmod(filepath.Join(dir, "secret"), 0))
		for what, err := range map[string]error{
			"open":       second(s.Open(ctx, "secret")),
			"open below": second(s.Open(ctx, "closed/x")),
			"stat below": second(s.Stat(ctx, "closed/x")),
			"delete":     s.Delete(ctx, "read-only/x"),
			"delete all": s.DeleteAll(ctx, []string{"closed/x", "read-only/x"}),
			"create":     WriteAll(ctx, s, "read-only/y", nil, nil),
			"create dir": WriteAll(ctx, s, "read-only/d/y", nil, nil),
			"overwrite":  WriteAll(ctx, s, "read-only/x", nil, nil),
		} {
			require.ErrorIs(t, err, ErrPermission, what)
			require.Contains(t, err.Error(), "access denied", what)
			require.Contains(t, err.Error(), dir, what)
		}
		require.NoError(t, os.Chmod(filepath.Join(dir, "closed"), 0o755))
	}, dir)
	require.Empty(t, temporaries(t, s, ""))
}

func second[T any](_ T, err error) error { return err }

func TestLocalSymlinks(t *testing.T) {
	base := t.TempDir()
	dir, out := filepath.Join(base, "store"), filepath.Join(base, "outside")
	touch(t, dir, "real/x", "real/y")
	touch(t, out, "secret")
	for link, to := range map[string]string{
		"file": "real/x", "dir": "real", "dangling": "nowhere", "self": "self",
		"escape": "../outside/secret", "escape-dir": "../outside", "absolute": filepath.Join(out, "secret"), "real/up": "../real/y",
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	var log bytes.Buffer
	ctx := t.Context()
	s := openDirStore(t, dir, slog.New(slog.NewTextHandler(&log, nil)))
	// Links to files are objects; links to directories, to nothing and out are not listed.
	require.Equal(t, []string{"file", "real/up", "real/x", "real/y"}, listed(t, s, nil))
	require.Equal(t, []string{"file", "real/"}, listed(t, s, &ListOptions{Delimiter: true}))
	for _, l := range []string{"dir", "dangling", "self", "escape", "escape-dir", "absolute"} {
		require.Contains(t, log.String(), l+" reason=", "%s", log.String())
	}
	b, err := ReadAll(ctx, s, "file", 100)
	require.NoError(t, err)
	require.Equal(t, "real/x", string(b))
	i, err := s.Stat(ctx, "file")
	require.NoError(t, err)
	require.EqualValues(t, 6, i.Size)
	// What the caller names is followed inside the folder, and never out of it.
	b, err = ReadAll(ctx, s, "dir/y", 100)
	require.NoError(t, err)
	require.Equal(t, "real/y", string(b))
	require.Equal(t, []string{"dir/up", "dir/x", "dir/y"}, listed(t, s, &ListOptions{Prefix: "dir/"}))
	for _, n := range []string{"escape", "escape-dir/secret", "absolute"} {
		_, err = s.Open(ctx, n)
		require.ErrorIs(t, err, ErrPermission, n)
		require.ErrorContains(t, err, "leads out", n)
		_, err = s.Stat(ctx, n)
		require.ErrorIs(t, err, ErrPermission, n)
	}
	require.ErrorIs(t, WriteAll(ctx, s, "escape-dir/new", nil, nil), ErrPermission)
	require.NoFileExists(t, filepath.Join(out, "new"))
	for _, err := range s.List(ctx, &ListOptions{Prefix: "escape-dir/"}) {
		require.ErrorIs(t, err, ErrPermission)
	}
	_, err = s.Open(ctx, "dangling")
	require.ErrorIs(t, err, ErrNotExist)
	_, err = s.Open(ctx, "self")
	require.Error(t, err)
	// Writing to a link, or deleting it, is about the link.
	require.NoError(t, WriteAll(ctx, s, "escape", []byte("mine"), nil))
	require.NoError(t, s.Delete(ctx, "file"))
	require.NoError(t, s.Delete(ctx, "absolute"))
	require.NoError(t, s.Delete(ctx, "dir"), "a link to a directory is no directory")
	require.Equal(t, []string{"escape", "real/up", "real/x", "real/y"}, listed(t, s, nil))
	got, err := os.ReadFile(filepath.Join(out, "secret"))
	require.NoError(t, err)
	require.Equal(t, "secret", string(got))

	// The root itself may be reached by links, and the whole system follows all.
	link := filepath.Join(base, "link")
	require.NoError(t, os.Symlink(dir, link))
	require.Equal(t, listed(t, s, nil), listed(t, openDirStore(t, link, nil), nil))
	require.NoError(t, os.Symlink(filepath.Join(out, "secret"), filepath.Join(dir, "absolute")))
	pool := NewPool(nil, nil)
	defer pool.Close()
	loc, err := Parse(filepath.Join(dir, "absolute"))
	require.NoError(t, err)
	root, name, err := pool.Resolve(ctx, loc)
	require.NoError(t, err)
	b, err = ReadAll(ctx, root, name, 100)
	require.NoError(t, err)
	require.Equal(t, "secret", string(b))
	_, err = ReadAll(ctx, Sub(root, strings.TrimPrefix(filepath.ToSlash(dir), "/")), "absolute", 100)
	require.ErrorIs(t, err, ErrPermission, "but a folder of it is confined")
}

func TestLocalNamesOfAnyBytes(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems refuse such names")
	}
	dir := t.TempDir()
	bad := "caf\xe9"
	touch(t, dir, bad, "d\xff/x", "ok")
	s := openDirStore(t, dir, nil)
	require.Equal(t, []string{bad, "d\xff/x", "ok"}, listed(t, s, nil))
	b, err := ReadAll(t.Context(), s, "d\xff/x", 100)
	require.NoError(t, err)
	require.Equal(t, "d\xff/x", string(b))
	require.ErrorIs(t, WriteAll(t.Context(), s, bad, nil, nil), ErrInvalidName)
	require.NoError(t, s.DeleteAll(t.Context(), []string{bad, "d\xff/x"}))
	require.Equal(t, []string{"ok"}, listed(t, s, nil))

	// A name of the greatest length has room for its temporary one.
	long := strings.Repeat("n", 255)
	require.NoError(t, WriteAll(t.Context(), s, long, []byte("x"), nil))
	err = WriteAll(t.Context(), s, long+"n", []byte("x"), nil)
	require.ErrorIs(t, err, ErrInvalidName)
	require.Contains(t, err.Error(), "longer than the file system takes")
	_, err = s.Stat(t.Context(), long+"n")
	require.ErrorIs(t, err, ErrInvalidName)
	require.Empty(t, temporaries(t, s, ""))
}

func TestLocalRoot(t *testing.T) {
	base := t.TempDir()
	ctx := t.Context()
	s := openDirStore(t, filepath.Join(base, "not/there/yet"), nil)
	require.Empty(t, listed(t, s, nil))
	_, err := s.Open(ctx, "x")
	require.ErrorIs(t, err, ErrNotExist)
	require.NoError(t, s.Delete(ctx, "x"))
	require.NoError(t, s.DeleteAll(ctx, []string{"x", "y"}))
	require.NoDirExists(t, filepath.Join(base, "not"), "reading makes nothing")
	require.NoError(t, WriteAll(ctx, s, "a/x", []byte("x"), nil))
	require.Equal(t, []string{"a/x"}, listed(t, s, nil))

	require.NoError(t, os.RemoveAll(filepath.Join(base, "not")))
	require.Empty(t, listed(t, s, nil))
	require.NoError(t, WriteAll(ctx, s, "a/x", []byte("x"), nil), "a root that was removed is made again")

	file := openDirStore(t, filepath.Join(base, "not/there/yet/a/x"), nil)
	require.Empty(t, listed(t, file, nil))
	_, err = file.Stat(ctx, "y")
	require.ErrorIs(t, err, ErrNotExist)
	require.Error(t, WriteAll(ctx, file, "y", nil, nil))

	_, err = Open(ctx, "file://"+base+"?fsync=maybe", nil)
	require.ErrorContains(t, err, `unknown URL parameter "fsync"`)
	_, err = Open(ctx, "file://"+base+"?secret=SECRET", nil)
	require.ErrorContains(t, err, `unknown URL parameter "secret"`)
	require.NotContains(t, err.Error(), "SECRET")
}

func TestLocalFileModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("has none")
	}
	dir := t.TempDir()
	require.NoError(t, WriteAll(t.Context(), openDirStore(t, dir, nil), "d/x", nil, nil))
	touch(t, dir, "e/y")
	mode := func(n string) fs.FileMode {
		fi, err := os.Stat(filepath.Join(dir, n))
		require.NoError(t, err)
		return fi.Mode()
	}
	require.Equal(t, mode("e/y"), mode("d/x"), "as the user's umask has it, not for the owner alone")
	require.Equal(t, mode("e"), mode("d"))
}

// A process that dies in the middle leaves nothing but a file that is recognised.
func TestLocalCrash(t *testing.T) {
	dir := t.TempDir()
	out, err := helper(t, "crash", dir).CombinedOutput()
	require.Error(t, err, string(out))
	s := openDirStore(t, dir, nil)
	require.Equal(t, []string{"done"}, listed(t, s, nil))
	left := temporaries(t, s, "")
	require.Len(t, left, 2)
	require.Equal(t, left[1:], temporaries(t, s, "chk-1/"))
	for _, n := range left {
		require.True(t, IsTemporaryName(n))
		require.NoError(t, s.(TemporaryLister).DeleteTemporary(t.Context(), n))
	}
	require.Empty(t, temporaries(t, s, ""))
}

// Several processes create the same names; each has one winner, whose bytes it holds.
func TestLocalIfAbsentBetweenProcesses(t *testing.T) {
	for _, how := range []string{"rename", "link"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			const processes = 4
			var outs [processes]bytes.Buffer
			var cmds []*exec.Cmd
			for i := range processes {
				c := helper(t, "race", dir, fmt.Sprint(i), how)
				c.Stdout, c.Stderr = &outs[i], os.Stderr
				require.NoError(t, c.Start())
				cmds = append(cmds, c)
			}
			won := map[string]string{}
			for i, c := range cmds {
				require.NoError(t, c.Wait())
				for n := range strings.Lines(outs[i].String()) {
					n = strings.TrimSpace(n)
					require.NotContains(t, won, n, "two winners")
					won[n] = fmt.Sprint(i)
				}
			}
			s := openDirStore(t, dir, nil)
			require.Len(t, listed(t, s, nil), raceNames)
			require.Len(t, won, raceNames)
			winners := map[string]bool{}
			for n, w := range won {
				b, err := ReadAll(t.Context(), s, n, 1<<20)
				require.NoError(t, err)
				require.Equal(t, strings.Repeat(w, 10_000), string(b))
				winners[w] = true
			}
			t.Logf("%d of %d processes won something", len(winners), processes)
			require.Empty(t, temporaries(t, s, ""))
		})
	}
}

const raceNames = 100

func helper(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestHelperProcess$")
	c.Env = append(os.Environ(), "BLOBSTORE_HELPER="+strings.Join(args, "|"))
	return c
}

// TestHelperProcess is what helper runs.
func TestHelperProcess(t *testing.T) {
	args := strings.Split(os.Getenv("BLOBSTORE_HELPER"), "|")
	if args[0] == "" {
		t.Skip("for other tests")
	}
	ctx := context.Background()
	s, err := Open(ctx, "file://"+args[1], nil)
	if err != nil {
		panic(err)
	}
	switch args[0] {
	case "crash":
		WriteAll(ctx, s, "done", nil, nil)
		for _, n := range []string{"chk-1/x", "top"} {
			w, err := s.Create(ctx, n, nil)
			if err != nil {
				panic(err)
			}
			w.Write(make([]byte, 100_000))
		}
		p, _ := os.FindProcess(os.Getpid())
		p.Kill()
		time.Sleep(time.Minute)
	case "race":
		if args[3] == "link" {
			forceLink = true
		}
		for i := range raceNames {
			n := fmt.Sprintf("d%d/%d", i%7, i)
			err := WriteAll(ctx, s, n, bytes.Repeat([]byte(args[2]), 10_000), &WriteOptions{IfAbsent: true})
			if err == nil {
				fmt.Println(n)
			} else if !strings.HasSuffix(err.Error(), ErrExist.Error()) {
				panic(err)
			}
		}
		os.Exit(0) // without the summary of the tests
	}
}
