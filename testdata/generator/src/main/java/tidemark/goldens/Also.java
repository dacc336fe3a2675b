package tidemark.goldens;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * What a program makes of snapshots, read back with Flink. It is called as PROGRAM SNAPSHOT DIR and makes folders in DIR, each
 * with a snapshot: "copy" for the same state backend, "canonical" and "heap". The snapshot is moved away before they are read.
 */
final class Also {
    private Also() {}

    static String read(Case c, Run run, List<Run.Snapshot> snapshots, Path base, String program) throws Exception {
        if (run.readBacks.isEmpty()) {
            return "nothing to read back";
        }
        int entries = 0;
        int made = 0;
        String what = "";
        StringBuilder skipped = new StringBuilder();
        for (Run.Snapshot s : snapshots) {
            Path dir = base.resolveSibling(base.getFileName() + "-also");
            Main.delete(dir);
            Files.createDirectories(dir);
            Process p = new ProcessBuilder(program, s.dir().toString(), dir.toString()).inheritIO().start();
            if (p.waitFor() != 0) {
                throw new IllegalStateException(program + " " + s.dir() + ": exit code " + p.exitValue());
            }
            Path away = base.resolveSibling(base.getFileName() + "-away");
            Files.move(base, away);
            try (var all = Files.list(dir)) {
                for (Path to : (Iterable<Path>) all.sorted()::iterator) {
                    Run.Snapshot as = new Run.Snapshot(to, s.kind(), s.parallelism(), s.expected());
                    boolean copy = to.getFileName().toString().equals("copy");
                    for (Run.ReadBack op : run.readBacks.values()) {
                        what = to.getFileName() + " of " + s.dir().getFileName();
                        if (copy && c.readByJob) {
                            entries += Verify.readBackByJob(as, op, c.readConf, c.maxParallelism);
                        } else if (copy && c.noReadBack != null) {
                            skipped.append(" copy: ").append(c.noReadBack);
                        } else {
                            String backend = !copy ? "hashmap" : c.readBackend != null ? c.readBackend
                                    : s.kind().startsWith("canonical") ? "hashmap" : c.conf.getOrDefault("state.backend.type", "hashmap");
                            entries += Verify.readBack(as, op, backend, c.readConf);
                        }
                    }
                    made++;
                }
            } catch (IllegalStateException e) {
                throw new IllegalStateException(what + ": " + e.getMessage(), e);
            } finally {
                Files.move(away, base);
                Main.delete(dir);
            }
        }
        return made + " snapshots made of " + snapshots.size() + ", " + entries + " entries read back" + skipped;
    }
}
