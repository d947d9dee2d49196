package io.github.holdfast;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;

/** RESP3: what a client of locks needs of it. */
final class Resp {
    private static final int MAX_DEPTH = 8;
    private static final int MAX_ELEMENTS = 1 << 16;
    private static final int MAX_TEXT = 1 << 20;

    /** An error reply. */
    record Failure(String text) { }

    /** What a node sends without being asked. */
    record Push(List<Object> words) {
        String word(int i) {
            return i < words.size() && words.get(i) instanceof String text ? text : "";
        }
    }

    private Resp() { }

    /** Reads a String, Long, null, List, Map, Failure or Push. */
    static Object read(InputStream in) throws IOException {
        return read(in, 0);
    }

    private static Object read(InputStream in, int depth) throws IOException {
        if (depth > MAX_DEPTH) {
            throw new IOException("the node's reply is not RESP3");
        }
        int kind = in.read();
        String line = line(in);
        return switch (kind) {
            case '+', ',', '#', '(' -> line;
            case '-' -> new Failure(line);
            case ':' -> number(line);
            case '_' -> null;
            case '$', '=' -> text(in, size(line, MAX_TEXT));
            case '!' -> new Failure(text(in, size(line, MAX_TEXT)));
            case '*', '~' -> list(in, size(line, MAX_ELEMENTS), depth);
            case '>' -> new Push(list(in, size(line, MAX_ELEMENTS), depth));
            case '%' -> {
                var map = new LinkedHashMap<Object, Object>();
                for (int left = size(line, MAX_ELEMENTS); left > 0; left--) {
                    var key = read(in, depth + 1);
                    map.put(key, read(in, depth + 1));
                }
                yield map;
            }
            case -1 -> throw new EOFException("closed by the node");
            default -> throw new IOException("the node's reply is not RESP3");
        };
    }

    private static String line(InputStream in) throws IOException {
        var line = new ByteArrayOutputStream();
        for (int b = in.read(); b != '\r'; b = in.read()) {
            if (b < 0) {
                throw new EOFException("closed by the node");
            }
            if (line.size() == MAX_TEXT) {
                throw new IOException("the node's reply is too long");
            }
            line.write(b);
        }
        if (in.read() != '\n') {
            throw new IOException("the node's reply is not RESP3");
        }
        return line.toString(StandardCharsets.UTF_8);
    }

    private static long number(String line) throws IOException {
        try {
            return Long.parseLong(line);
        } catch (NumberFormatException e) {
            throw new IOException("the node's reply is not RESP3", e);
        }
    }

    private static int size(String line, int most) throws IOException {
        long size = number(line);
        if (size > most) {
            throw new IOException("the node's reply is too long");
        }
        return (int) size;
    }

    private static String text(InputStream in, int size) throws IOException {
        if (size < 0) {
            return null;
        }
        byte[] data = in.readNBytes(size + 2);
        if (data.length != size + 2) {
            throw new EOFException("closed by the node");
        }
        return new String(data, 0, size, StandardCharsets.UTF_8);
    }

    private static List<Object> list(InputStream in, int size, int depth) throws IOException {
        if (size < 0) {
            return null;
        }
        var list = new ArrayList<Object>();
        for (int i = 0; i < size; i++) {
            list.add(read(in, depth + 1));
        }
        return list;
    }

    static byte[] command(List<?> words) {
        var out = new ByteArrayOutputStream();
        out.writeBytes(("*" + words.size() + "\r\n").getBytes(StandardCharsets.UTF_8));
        for (var word : words) {
            byte[] data = String.valueOf(word).getBytes(StandardCharsets.UTF_8);
            out.writeBytes(("$" + data.length + "\r\n").getBytes(StandardCharsets.UTF_8));
            out.writeBytes(data);
            out.writeBytes(new byte[] {'\r', '\n'});
        }
        return out.toByteArray();
    }
}
