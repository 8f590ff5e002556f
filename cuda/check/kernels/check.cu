// The kernels of the check program. `check.ptx` is compiled from this file by `ptx.py`, two folders up.

typedef unsigned long long u64;

// The device's clock, in nanoseconds. On some GPUs it moves in steps of a microsecond.
__device__ u64 now() {
    u64 time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

__device__ void wait(u64 nanos) {
    for (u64 begin = now(); now() - begin < nanos;) {
    }
}

// Runs for a known time, like a training step without its work. For one thread.
extern "C" __global__ void spin(u64 nanos) { wait(nanos); }

// The finaliser of splitmix64.
__device__ u64 mix(u64 word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
    return word ^ (word >> 31);
}

// Reads `data`, which starts at a multiple of 8, from memory `turns` times, with a pause before each turn. Adds to
// `sum`, for each word, a number that depends on the word, its position and `salt`. An incomplete last word is padded
// with zeros. For any number of threads.
extern "C" __global__ void fold(const volatile unsigned char* data, u64 bytes, u64 salt, u64 turns, u64 pause, u64* sum) {
    const volatile u64* words = (const volatile u64*)data;
    u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x, step = gridDim.x * (u64)blockDim.x, total = 0;
    for (u64 turn = 0; turn < turns; turn++) {
        wait(pause);
        for (u64 i = first; i < (bytes + 7) / 8; i += step) {
            u64 word = 0;
            if (i < bytes / 8) {
                word = words[i];
            } else {
                for (u64 at = i * 8; at < bytes; at++) word |= (u64)data[at] << (at % 8 * 8);
            }
            total += mix(word + (i + salt) * 0x9E3779B97F4A7C15);
        }
    }
    atomicAdd(sum, total);
}
