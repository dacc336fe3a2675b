package tidemark.goldens;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.state.api.OperatorIdentifier;

/**
 * What a program makes of snapshots, restored with Flink. It is called as PROGRAM SNAPSHOT DIR and makes folders in DIR, each
 * with a snapshot: "copy" for the same state backend, "canonical" and "heap". The snapshot is moved away before they are
 * restored: keyed states are read back one by one, and the case's own job starts from each and takes a checkpoint. Then
 * PROGRAM diff SNAPSHOT CHECKPOINT [--operator ID]… fails if a state of these operators is not as it was.
 */
final class Also {
    private Also() {}

    /** What a running job said that it did, by kind and subtask. */
    static final Map<String, List<Object>> NOTED = new ConcurrentHashMap<>();

    static void note(String kind, int subtask, Object what) {
        NOTED.computeIfAbsent(kind + " " + subtask, k -> new CopyOnWriteArrayList<>()).add(what);
    }

    /** @param run whose job has ended; its cluster is used. */
    static String read(Run run, List<Run.Snapshot> snapshots, Path root, String program) throws Exception {
        Case c = run.spec;
        List<Run.ReadBack> readBacks = List.copyOf(run.readBacks.values());
        Path base = root.resolve(c.fullName());
        Path dir = root.resolve(c.fullName() + "-also");
        Path away = root.resolve(c.fullName() + "-away");
        Path again = root.resolve("again");
        int entries = 0;
        int made = 0;
        List<String> failed = new ArrayList<>();
        Main.delete(away);
        for (Run.Snapshot s : snapshots) {
            Main.delete(dir);
            Files.createDirectories(dir);
            call(program, s.dir().toString(), dir.toString());
            List<Path> all;
            try (var l = Files.list(dir)) {
                all = l.sorted().toList();
            }
            for (Path to : all) {
                Main.delete(again);
                try {
                    Path checkpoint;
                    Files.move(base, away);
                    try {
                        Run.Snapshot as = new Run.Snapshot(to, s.kind(), s.parallelism(), s.expected());
                        for (Run.ReadBack op : readBacks) {
                            entries += readBack(run, as, op);
                        }
                        checkpoint = restore(run, as, again);
                    } finally {
                        Files.move(away, base);
                    }
                    List<String> diff = new ArrayList<>(List.of(program, "diff", s.dir().toString(), checkpoint.toString()));
                    for (OperatorState o : Verify.load(s.dir()).getOperatorStates()) {
                        if (c.unchanged != null && c.unchanged.stream().anyMatch(u -> OperatorIdentifier.forUid(u).getOperatorId().equals(o.getOperatorID()))) {
                            diff.add("--operator");
                            diff.add(o.getOperatorID().toHexString());
                        }
                    }
                    call(diff.toArray(new String[0]));
                    made++;
                } catch (Exception e) {
                    failed.add(to.getFileName() + " of " + s.dir().getFileName() + ": " + cause(e));
                    if (System.getenv("TRACE") != null) {
                        e.printStackTrace(System.out);
                    }
                }
            }
            Main.delete(dir);
            Main.delete(again);
        }
        if (!failed.isEmpty()) {
            throw new IllegalStateException(made + " restored, but not " + String.join("\nand ", failed));
        }
        return made + " snapshots made of " + snapshots.size() + " and restored, " + entries + " entries read back";
    }

    /** Whether the cluster of the case merges files: it goes on to use its folder, which is moved away. */
    private static boolean merging(Case c) {
        return c.conf.containsKey("execution.checkpointing.file-merging.enabled");
    }

    /** Reads the keyed state of one operator and compares it with what the job put. */
    private static int readBack(Run run, Run.Snapshot s, Run.ReadBack op) throws Exception {
        Case c = run.spec;
        MiniCluster cluster = merging(c) ? null : run.cluster();
        boolean copy = s.dir().endsWith("copy");
        if (copy && c.readByJob) {
            return Verify.readBackByJob(cluster, s, op, c.readConf, c.maxParallelism);
        }
        if (c.readByJob && op.timers()) { // the reader may not find them: on the heap beside RocksDB they are raw state
            op = new Run.ReadBack(op.uid(), op.keyType(), op.specs(), false);
        }
        String backend = !copy ? "hashmap" : c.readBackend != null ? c.readBackend
                : s.kind().startsWith("canonical") ? "hashmap" : c.conf.getOrDefault("state.backend.type", "hashmap");
        return Verify.readBack(cluster, s, op, backend, copy ? c.readConf : Map.of());
    }

    /** Starts the case's job from a snapshot and takes a checkpoint, whose folder it returns. */
    private static Path restore(Run of, Run.Snapshot s, Path root) throws Exception {
        String noted = of.spec.noted;
        Gate.reset();
        NOTED.clear();
        // Claimed are checkpoints only: of a savepoint, which has relative paths, the next incremental or changelog checkpoint
        // would name files in its own folder, which are not there.
        boolean claim = s.dir().endsWith("copy") && s.kind().equals("checkpoint");
        boolean changelog = of.spec.conf.containsKey("state.changelog.enabled");
        Map<String, String> settings = new HashMap<>();
        if (s.dir().endsWith("heap") || s.dir().endsWith("canonical") && "forst".equals(of.spec.conf.get("state.backend.type"))) {
            // ForSt restores its own checkpoints only.
            settings.put("state.backend.type", "hashmap");
        }
        if (changelog && !claim) { // with a changelog Flink cannot take the full checkpoint that comes first then
            settings.put("state.changelog.enabled", "false");
        }
        // A cluster with a changelog goes on to use its folder, too.
        try (Run run = new Run(of.spec, root, changelog && claim || merging(of.spec) ? null : of, settings)) {
            run.parallelism = s.parallelism();
            run.start(s.dir(), claim ? "CLAIM" : "NO_CLAIM");
            if (noted != null) {
                awaitNoted(noted, s.dir().endsWith("canonical") && noted.equals("in-flight-records") ? List.of() : s.expected());
            }
            return run.checkpoint();
        }
    }

    /** Waits until the job has noted what the entries of that kind say, and a moment for more. */
    private static void awaitNoted(String kind, List<Map<String, Object>> expected) throws Exception {
        List<String> want = new ArrayList<>();
        for (Map<String, Object> m : expected) {
            String value = text(m.get("value"));
            if (kind.equals(m.get("kind")) && !value.equals("[]")) {
                want.add(kind + " " + m.getOrDefault("subtask", -1) + ": " + value);
            }
        }
        want.sort(null);
        long end = System.currentTimeMillis() + 20_000;
        while (!noted().equals(want) && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        Thread.sleep(300);
        if (!noted().equals(want)) {
            throw new IllegalStateException("the job did " + noted() + ", expected is " + want);
        }
    }

    private static List<String> noted() {
        List<String> l = new ArrayList<>();
        NOTED.forEach((k, v) -> {
            List<Object> sorted = new ArrayList<>(v);
            sorted.sort(Comparator.comparing(o -> o instanceof Long n ? n : 0L)); // stable: texts stay as they came
            l.add(k + ": " + text(Json.value(sorted)));
        });
        l.sort(null);
        return l;
    }

    private static String text(Object o) {
        return ((Json.Raw) o).text();
    }

    /** The outermost and the innermost message, each in one line. */
    private static String cause(Throwable e) {
        Throwable last = e;
        while (last.getCause() != null) {
            last = last.getCause();
        }
        String b = e.toString();
        return (last == e ? b : b + " <- " + last).lines().collect(java.util.stream.Collectors.joining(" "));
    }

    private static void call(String... command) throws Exception {
        Process p = new ProcessBuilder(command).inheritIO().start();
        if (p.waitFor() != 0) {
            throw new IllegalStateException(String.join(" ", command) + ": exit code " + p.exitValue());
        }
    }
}
