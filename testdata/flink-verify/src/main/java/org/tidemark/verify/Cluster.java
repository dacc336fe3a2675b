package org.tidemark.verify;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.execution.ExecutionState;
import org.apache.flink.runtime.executiongraph.AccessExecutionVertex;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.runtime.rpc.RpcSystem;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.util.Reference;

/** One job on a MiniCluster of its own: configured by the options, started, snapshotted and stopped. */
final class Cluster {
    private static final long TIMEOUT_MS = 120_000;

    /**
     * The classes of Flink's RPC, which a MiniCluster loads anew for itself unless it is given some: it unpacks a jar of them and
     * loads each again, most of the time that a small job takes. Actor systems are still each cluster's own.
     */
    private static RpcSystem rpc;

    private final Options o;
    private final Report r;
    private MiniCluster cluster;
    private JobID job;
    private Path scratch;

    Cluster(Options o, Report r) {
        this.o = o;
        this.r = r;
    }

    /** The configuration of the job; its checkpoints go to out if a checkpoint is asked for. */
    Configuration configuration(String restoreFrom, File out) throws IOException {
        scratch = Files.createTempDirectory("flink-verify");
        // a job that ends with a savepoint leaves no checkpoint, only the empty folders for them
        File checkpoints = o.snapshot.equals("checkpoint") && out != null ? out : new File(scratch.toFile(), "cp");
        Map<String, String> m = new HashMap<>();
        m.put("state.backend.type", o.backend);
        m.put("execution.checkpointing.storage", "filesystem");
        m.put("execution.checkpointing.dir", checkpoints.toURI().toString());
        m.put("execution.checkpointing.incremental", String.valueOf(o.incremental));
        // checkpointing is on, but only we trigger; without the pause Flink 2.3 takes a checkpoint as soon as the job runs
        m.put("execution.checkpointing.interval", "365 d");
        m.put("execution.checkpointing.min-pause", "364 d");
        m.put("execution.checkpointing.timeout", "60 s");
        m.put("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        m.put("execution.checkpointing.unaligned.enabled", String.valueOf(o.unaligned));
        m.put("restart-strategy.type", "none");
        m.put("pipeline.generic-types", "false");
        m.put("taskmanager.memory.network.min", "32 mb");
        m.put("taskmanager.memory.network.max", "32 mb");
        m.put("taskmanager.memory.managed.size", "64 mb");
        m.put("rest.bind-port", "0");
        if (restoreFrom != null) {
            m.put("execution.state-recovery.path", restoreFrom);
            m.put("execution.state-recovery.claim-mode", o.claimMode.toUpperCase());
            m.put("execution.state-recovery.ignore-unclaimed-state", String.valueOf(o.allowNonRestored));
        }
        m.put("io.tmp.dirs", scratch.toString());
        m.put("process.working-dir", scratch.toString());
        m.putAll(o.conf);
        return Configuration.fromMap(m);
    }

    void start(Configuration conf, StreamGraph g, int slots) throws Exception {
        cluster =
                new MiniCluster(
                        new MiniClusterConfiguration.Builder()
                                .setConfiguration(conf)
                                .withRandomPorts()
                                .setNumTaskManagers(1)
                                .setNumSlotsPerTaskManager(slots)
                                .build(),
                        () -> Reference.borrowed(rpc()));
        cluster.start();
        JobGraph jg = g.getJobGraph();
        job = jg.getJobID();
        cluster.submitJob(jg).get();
    }

    private static synchronized RpcSystem rpc() {
        if (rpc == null) {
            rpc = RpcSystem.load(new Configuration()); // unpacks to the temporary folder of the process, not to that of a job
        }
        return rpc;
    }

    /** Whether the JobManager knows that all tasks run; before, it takes no checkpoint. */
    boolean running() {
        return all(EnumSet.of(ExecutionState.RUNNING));
    }

    /** Whether all tasks run or have finished: a checkpoint can be taken. */
    boolean live() {
        return all(EnumSet.of(ExecutionState.RUNNING, ExecutionState.FINISHED));
    }

    /** A job whose master is still being made has a graph without vertices: it is in none of the states. */
    private boolean all(EnumSet<ExecutionState> states) {
        try {
            boolean any = false;
            for (AccessExecutionVertex v : cluster.getExecutionGraph(job).get().getAllExecutionVertices()) {
                if (!states.contains(v.getExecutionState())) {
                    return false;
                }
                any = true;
            }
            return any;
        } catch (Exception e) {
            return false; // a job that has failed is noticed in await
        }
    }

    void stop() {
        if (cluster != null) {
            try {
                cluster.close();
            } catch (Exception e) {
                r.event("close", "error", e.toString());
            }
            cluster = null;
        }
        if (scratch != null) {
            deleteRecursively(scratch);
        }
    }

    /** Waits for a condition; a job that ends meanwhile is an error with the job's own cause. */
    void await(String what, BooleanSupplier c) throws Exception {
        long end = System.nanoTime() + TIMEOUT_MS * 1_000_000;
        for (int i = 0; !c.getAsBoolean(); i++) {
            Thread.sleep(5);
            if (i % 10 == 0) {
                failIfEnded(what);
            }
            if (System.nanoTime() > end) {
                throw new IOException("timed out waiting for " + what);
            }
        }
    }

    /** The job's own failure, if it fails in the wake of this one; else this one. */
    Exception cause(Exception e) {
        try {
            for (int i = 0; cluster != null && i < 40; i++) {
                failIfEnded("the snapshot");
                Thread.sleep(50);
            }
            return e;
        } catch (Exception x) {
            return x.getCause() != null ? x : e;
        }
    }

    void failIfEnded(String what) throws Exception {
        JobStatus s = cluster.getJobStatus(job).get();
        if (s.isTerminalState()) {
            throw new IOException(
                    "the job ended (" + s + ") while waiting for " + what,
                    cluster.requestJobResult(job).get().getSerializedThrowable().map(t -> (Throwable) t).orElse(null));
        }
    }

    /** Waits until the job has ended by itself, for TIMEOUT_MS at most. */
    void finished() throws Exception {
        JobResult result = cluster.requestJobResult(job).get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        if (!result.isSuccess()) {
            throw new IOException("the job did not finish", result.getSerializedThrowable().map(t -> (Throwable) t).orElse(null));
        }
    }

    // ---- snapshots -----------------------------------------------------------------------------------------------------------

    void checkpoint() throws Exception {
        cluster.triggerCheckpoint(job, CheckpointType.CONFIGURED).get();
    }

    /** Takes the snapshot asked for, ends the job and returns the directory with the _metadata. */
    File snapshot(File out) throws Exception {
        File dir;
        if (o.snapshot.equals("checkpoint")) {
            long id = cluster.triggerCheckpoint(job, CheckpointType.CONFIGURED).get();
            dir = new File(out, job.toHexString() + "/chk-" + id);
            cluster.cancelJob(job).get();
            cluster.requestJobResult(job).get();
        } else {
            SavepointFormatType f = SavepointFormatType.valueOf(o.snapshot.toUpperCase());
            File parent = new File(out, "savepoint.tmp");
            parent.mkdirs();
            String p =
                    o.stop
                            ? cluster.stopWithSavepoint(job, parent.toURI().toString(), false, f).get()
                            : cluster.triggerSavepoint(job, parent.toURI().toString(), true, f).get();
            // Flink names the directory; savepoints may be moved, so move the contents to where the caller wants them
            File made = new File(java.net.URI.create(p.startsWith("/") ? "file:" + p : p).getPath());
            dir = out;
            for (File x : made.listFiles()) {
                Files.move(x.toPath(), new File(out, x.getName()).toPath(), StandardCopyOption.REPLACE_EXISTING);
            }
            Files.delete(made.toPath());
            Files.delete(parent.toPath());
        }
        return dir;
    }

    static void emptyOut(File out) throws IOException {
        if (out.exists() && out.list() != null && out.list().length > 0) {
            throw new IOException("--out: " + out.getName() + " is not empty");
        }
        Files.createDirectories(out.toPath());
    }

    static void deleteRecursively(Path p) {
        File[] l = p.toFile().listFiles();
        if (l != null) {
            for (File f : l) {
                deleteRecursively(f.toPath());
            }
        }
        p.toFile().delete();
    }
}
