package org.tidemark.verify;

import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.triggers.CountTrigger;
import org.apache.flink.streaming.api.windowing.triggers.PurgingTrigger;

/**
 * The command pipeline: the job of internal/flinkverify/pipeline with the same uids, states and results, so that it goes on from a
 * savepoint or checkpoint of that job and the reverse. Each result is a line in a file of the folder --results.
 */
final class Pipeline {
    static final int SPLITS = 12;
    static final int KEYS = 37;
    static final int RULES = 30;
    static final int DISORDER = 16;
    static final int BUCKET = 512;
    static final int MARKS = 64;

    private static final TypeInformation<Tuple2<Long, Long>> PAIR = Types.TUPLE(Types.LONG, Types.LONG);

    private final Options o;
    private final Report r;
    private final Cluster cluster;

    Pipeline(Options o, Report r) {
        this.o = o;
        this.r = r;
        this.cluster = new Cluster(o, r);
    }

    private static <T> SingleOutputStreamOperator<T> named(SingleOutputStreamOperator<T> s, String uid) {
        return s.uid(uid).name(uid);
    }

    private StreamGraph graph(Configuration conf, int parallelism) {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(conf);
        env.setParallelism(parallelism);
        env.setMaxParallelism(128);
        DataStream<Long> stamped =
                named(
                        named(
                                        env.fromSource(
                                                        new PipelineFunctions.Numbers(0, o.numbers - 1, SPLITS), WatermarkStrategy.noWatermarks(), "numbers")
                                                .uid("numbers")
                                                .map(new PipelineFunctions.Scramble(o.pace)),
                                        "scramble")
                                .assignTimestampsAndWatermarks(
                                        WatermarkStrategy.<Long>forBoundedOutOfOrderness(Duration.ofMillis(DISORDER)).withTimestampAssigner((v, t) -> v)),
                        "stamps");

        KeyedStream<Long, Long> byKey = stamped.keyBy((KeySelector<Long, Long>) v -> v % KEYS, Types.LONG);
        List<DataStream<String>> all = new ArrayList<>();
        all.add(named(byKey.process(new PipelineFunctions.Accounts(o.numbers, o.slow), Types.STRING), "accounts"));
        all.add(
                named(
                        byKey.window(TumblingEventTimeWindows.of(Duration.ofMillis(500)))
                                .reduce(new PipelineFunctions.Sum(), new PipelineFunctions.Tumbled(), Types.STRING),
                        "tumbling"));
        all.add(
                named(
                        byKey.window(SlidingEventTimeWindows.of(Duration.ofMillis(300), Duration.ofMillis(100)))
                                .aggregate(new PipelineFunctions.SumAndCount(), new PipelineFunctions.Slid(), PAIR, PAIR, Types.STRING),
                        "sliding"));
        all.add(
                named(
                        stamped.keyBy((KeySelector<Long, Long>) v -> v % KEYS + v / 500 % 2 * KEYS, Types.LONG)
                                .window(EventTimeSessionWindows.withGap(Duration.ofMillis(100)))
                                .process(new PipelineFunctions.Session(), Types.STRING),
                        "sessions"));
        if (!o.flat) {
            all.add(
                    named(
                            byKey.connect(rules(env).broadcast(PipelineFunctions.Matches.RULES)).process(new PipelineFunctions.Matches(), Types.STRING),
                            "matches"));
        }
        all.add(named(stamped.rebalance().transform("seen", Types.STRING, new PipelineFunctions.Seen()), "seen"));

        DataStream<Long> forOnes = o.flat ? stamped.rebalance() : stamped;
        KeyedStream<Tuple2<Long, Long>, Long> ones =
                named(((SingleOutputStreamOperator<Tuple2<Long, Long>>) forOnes.map(v -> Tuple2.of(v % KEYS, 1L), PAIR)).disableChaining(), "ones")
                        .keyBy((KeySelector<Tuple2<Long, Long>, Long>) p -> p.f0, Types.LONG);
        all.add(
                named(
                        named(ones.reduce((a, b) -> Tuple2.of(a.f0, a.f1 + b.f1)), "totals").map(p -> "total " + p.f0 + " " + p.f1, Types.STRING),
                        "total-lines"));
        all.add(
                named(
                        ones.window(TumblingEventTimeWindows.of(Duration.ofMillis(1000)))
                                .trigger(PurgingTrigger.of(CountTrigger.of(10)))
                                .reduce((a, b) -> Tuple2.of(a.f0, a.f1 + b.f1), new PipelineFunctions.Tens(), Types.STRING),
                        "tens"));
        all.add(named(byKey.transform("raw", Types.STRING, new PipelineFunctions.Raw()), "raw"));

        if (o.flat) {
            all.replaceAll(DataStream::rebalance);
        }
        @SuppressWarnings({"unchecked", "rawtypes"})
        DataStream<String>[] others = all.subList(1, all.size()).toArray(new DataStream[0]);
        named(all.get(0).union(others).transform("result", Types.STRING, new PipelineFunctions.Result(o.results.getPath())), "result");
        StreamGraph g = env.getStreamGraph();
        g.setSavepointRestoreSettings(SavepointRestoreSettings.fromConfiguration(conf));
        return g;
    }

    private DataStream<Long> rules(StreamExecutionEnvironment env) {
        return named(
                env.fromSource(new PipelineFunctions.Numbers(0, RULES - 1, 1), WatermarkStrategy.noWatermarks(), "rules")
                        .uid("rules")
                        .setParallelism(1)
                        .map(new PipelineFunctions.Rules(o.pace == 0 ? 0 : 50))
                        .setParallelism(1),
                "rule-values");
    }

    void run() throws Exception {
        int parallelism = o.parallelism > 0 ? o.parallelism : 2;
        if (o.out != null) {
            Cluster.emptyOut(o.out.getAbsoluteFile());
        }
        PipelineFunctions.start();
        try {
            Configuration conf = cluster.configuration(o.dir == null ? null : Options.resolve(o.dir).toURI().toString(), o.out == null ? null : o.out.getAbsoluteFile());
            conf.setString("pipeline.auto-watermark-interval", "5 ms");
            conf.setString("taskmanager.memory.managed.size", "512 mb"); // a dozen RocksDBs share it
            if (o.out == null) {
                conf.setString("execution.checkpointing.checkpoints-after-tasks-finish", "false"); // nothing would trigger the last one
            }
            cluster.start(conf, graph(conf, parallelism), parallelism);
            // All are there before the first record is read: a restored timer fires before the end comes.
            cluster.await("the tasks to start", cluster::live);
            PipelineFunctions.read(o.out == null ? Long.MAX_VALUE : o.stopAt);
            if (o.out == null) {
                cluster.finished();
                r.check("finished", true, "records", PipelineFunctions.read());
                return;
            }
            cluster.await("so many records", () -> PipelineFunctions.read() >= o.stopAt);
            File dir;
            try {
                dir = cluster.snapshot(o.out.getAbsoluteFile());
            } catch (Exception e) {
                throw cluster.cause(e);
            }
            r.check("snapshot", true, "format", o.snapshot, "path", dir.getPath(), "records", PipelineFunctions.read());
        } catch (Exception e) {
            r.error("pipeline", e);
            return;
        } finally {
            cluster.stop();
        }
        new Meta(o, r).run(Options.resolve(o.out.getAbsoluteFile()), null, true);
    }
}
