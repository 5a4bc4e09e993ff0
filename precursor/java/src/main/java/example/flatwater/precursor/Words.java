package example.flatwater.precursor;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Little-endian words of buffers and arrays, with the memory orders of the format. */
final class Words {
    private static final VarHandle LONG = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle LONG_IN_ARRAY =
        MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INT_IN_ARRAY =
        MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private Words() {
    }

    static long acquire(ByteBuffer buffer, int at) {
        return (long) LONG.getAcquire(buffer, at);
    }

    static void release(ByteBuffer buffer, int at, long value) {
        LONG.setRelease(buffer, at, value);
    }

    static long get(ByteBuffer buffer, int at) {
        return (long) LONG.get(buffer, at);
    }

    static void set(ByteBuffer buffer, int at, long value) {
        LONG.set(buffer, at, value);
    }

    /** Stores the value if the word is still zero. */
    static void setOnce(ByteBuffer buffer, int at, long value) {
        LONG.compareAndSet(buffer, at, 0L, value);
    }

    static long get(byte[] bytes, int at) {
        return (long) LONG_IN_ARRAY.get(bytes, at);
    }

    static void set(byte[] bytes, int at, long value) {
        LONG_IN_ARRAY.set(bytes, at, value);
    }

    static int getInt(byte[] bytes, int at) {
        return (int) INT_IN_ARRAY.get(bytes, at);
    }

    static void setInt(byte[] bytes, int at, int value) {
        INT_IN_ARRAY.set(bytes, at, value);
    }
}
