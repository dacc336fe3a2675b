import java.io.*;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.math.BigInteger;
import java.nio.file.*;
import java.time.*;
import java.util.*;

/**
 * Writes the .ser files beside this source: {@code java Maker.java .} with Java 17.
 * Each is one Java object stream; what stands in it is in the .txt file of the same name.
 */
public class Maker {
    enum Color { RED, GREEN { @Override public String toString() { return "g"; } } }

    static class Base implements Serializable {
        private static final long serialVersionUID = 11;
        int same = 1;
        String name = "base";
        transient int skipped = 9;
    }

    /** Nothing of its own in the stream. */
    static class Middle extends Base {
        private static final long serialVersionUID = 12;
    }

    static class Derived extends Middle {
        private static final long serialVersionUID = 13;
        boolean z = true;
        byte b = -2;
        char c = '\u20ac';
        short s = -300;
        int i = 70000;
        long l = -5000000000L;
        float f = 1.5f;
        double d = -0.1;
        int same = 2;
        String text = "derived";
        int[] ints = {1, -1};
        Object nothing = null;
    }

    static class Node implements Serializable {
        private static final long serialVersionUID = 21;
        String label;
        Node next;
        Node(String label) { this.label = label; }
    }

    static class Custom implements Serializable {
        private static final long serialVersionUID = 31;
        int plain = 5;
        private void writeObject(ObjectOutputStream out) throws IOException {
            out.defaultWriteObject();
            out.writeInt(42);
            out.writeUTF("written by hand");
            out.writeObject("object");
            out.write(new byte[2000]);
            out.writeObject(null);
        }
    }

    static class CustomChild extends Custom {
        private static final long serialVersionUID = 32;
        String own = "child";
        private void writeObject(ObjectOutputStream out) throws IOException {
            out.defaultWriteObject();
        }
    }

    public static class External implements Externalizable {
        private static final long serialVersionUID = 41;
        public External() {}
        @Override public void writeExternal(ObjectOutput out) throws IOException {
            out.writeLong(7);
            out.writeObject(Color.RED);
            out.writeBoolean(true);
        }
        @Override public void readExternal(ObjectInput in) {}
    }

    /** Externalizable below a serializable class: the fields of Base are not written. */
    public static class ExternalChild extends Base implements Externalizable {
        private static final long serialVersionUID = 42;
        int described = 3;
        public ExternalChild() {}
        @Override public void writeExternal(ObjectOutput out) throws IOException { out.writeInt(1); }
        @Override public void readExternal(ObjectInput in) {}
    }

    static class Handler implements InvocationHandler, Serializable {
        private static final long serialVersionUID = 51;
        int answer = 42;
        @Override public Object invoke(Object p, java.lang.reflect.Method m, Object[] a) { return null; }
    }

    static class Broken implements Serializable {
        private static final long serialVersionUID = 61;
        int before = 1;
        Object inner = new Object(); // not serializable
    }

    /** Field values through PutField. */
    static class Put implements Serializable {
        private static final long serialVersionUID = 71;
        private static final ObjectStreamField[] serialPersistentFields = {
            new ObjectStreamField("when", long.class), new ObjectStreamField("who", String.class)};
        private void writeObject(ObjectOutputStream out) throws IOException {
            ObjectOutputStream.PutField f = out.putFields();
            f.put("when", 99L);
            f.put("who", "somebody");
            out.writeFields();
        }
    }

    interface Body { void write(ObjectOutputStream out) throws IOException; }

    static void stream(Path dir, String name, Body body) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ObjectOutputStream out = new ObjectOutputStream(bytes);
        try {
            body.write(out);
        } catch (NotSerializableException expected) {
            if (!name.equals("aborted")) throw expected;
        }
        out.flush();
        Files.write(dir.resolve(name + ".ser"), bytes.toByteArray());
    }

    static void one(Path dir, String name, Object o) throws IOException {
        stream(dir, name, out -> out.writeObject(o));
    }

    public static void main(String[] args) throws IOException {
        Path dir = Paths.get(args[0]);
        one(dir, "null", null);
        one(dir, "string", "h\u00e9llo \u0000 \ud83d\ude00 \ud800");
        one(dir, "long-string", "x".repeat(70000));
        one(dir, "fields", new Derived());
        one(dir, "nothing-to-write", new Object[] {new Middle() {}.getClass() == null ? 1 : new Middle()});
        one(dir, "enum", new Object[] {Color.RED, Color.GREEN, Color.RED});
        one(dir, "class", new Object[] {String.class, Color.class, int.class, int[].class, Derived.class});
        one(dir, "boxed", new Object[] {1, 2L, (short) 3, (byte) 4, 'c', true, 1.5f, 2.5});
        one(dir, "arrays", new Object[] {new byte[] {1, 2, -1}, new boolean[] {true, false}, new char[] {'a', '\u20ac'},
            new short[] {-1}, new int[] {1 << 30}, new long[] {-1L}, new float[] {0.5f}, new double[] {Double.NaN},
            new String[] {"a", null, "a"}, new int[][] {{1}, null, {}}, new Object[0]});
        Node a = new Node("a"), b = new Node("b");
        a.next = b; b.next = a;
        one(dir, "cycle", a);
        Node chain = null;
        for (int i = 0; i < 200; i++) { Node n = new Node("n"); n.next = chain; chain = n; }
        one(dir, "chain", chain);
        one(dir, "custom", new CustomChild());
        one(dir, "externalizable", new Object[] {new External(), new ExternalChild(), Duration.ofMillis(1500)});
        stream(dir, "externalizable-protocol-1", out -> {
            out.useProtocolVersion(ObjectStreamConstants.PROTOCOL_VERSION_1);
            out.writeObject(new External());
        });
        one(dir, "proxy", Proxy.newProxyInstance(Maker.class.getClassLoader(), new Class<?>[] {Runnable.class, Comparable.class}, new Handler()));
        one(dir, "put-fields", new Put());
        List<Object> self = new ArrayList<>();
        self.add(self);
        one(dir, "list-of-itself", self);
        Map<String, Integer> tree = new TreeMap<>(Map.of("k", 1));
        Map<String, Integer> linked = new LinkedHashMap<>();
        linked.put("x", 1); linked.put("y", 2);
        one(dir, "lists", new Object[] {new ArrayList<>(List.of("a", "b")), new LinkedList<>(List.of("a", "b")), Arrays.asList("a", "b"),
            List.of("a", "b"), Collections.unmodifiableList(new ArrayList<>(List.of("a", "b"))),
            Collections.unmodifiableCollection(List.of("a", "b")), Collections.synchronizedList(new LinkedList<>(List.of("a", "b"))),
            new LinkedHashSet<>(List.of("a", "b")), new TreeSet<>(List.of("a", "b")), new ArrayDeque<>(List.of("a", "b")),
            new PriorityQueue<>(List.of("a", "b"))});
        one(dir, "small-lists", new Object[] {List.of(), Set.of("s"), Collections.emptyList(), Collections.singletonList("s"),
            Collections.singleton("s"), new ArrayList<>(), new HashSet<>()});
        one(dir, "maps", new Object[] {new HashMap<>(Map.of("k", 1)), linked, tree, Map.of("k", 1), Collections.unmodifiableMap(linked),
            Collections.emptyMap()});
        one(dir, "jdk", new Object[] {new BigInteger("-12345678901234567890"), new java.math.BigDecimal("1.50"), LocalDate.of(2020, 2, 29),
            Instant.ofEpochSecond(5, 6), ZoneId.of("Europe/Berlin"), new Date(7), UUID.fromString("00000000-0000-0001-0000-000000000002"),
            Locale.GERMANY, new BitSet(3)});
        stream(dir, "contents", out -> {
            out.writeInt(5);
            out.writeObject("first");
            out.writeUTF("loose");
            out.writeObject("first");
            out.reset();
            out.writeObject("first");
            out.writeObject(Color.RED);
            out.write(new byte[300]);
            out.writeUnshared("first");
        });
        stream(dir, "descriptor", out -> out.writeObject(ObjectStreamClass.lookup(Derived.class)));
        one(dir, "aborted", new Broken()); // its writer gave up halfway
    }
}
