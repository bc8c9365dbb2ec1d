// What the kernels compute with: 16 lanes of 32 bits, whatever registers the CPU has.
//
// `Floats`, `Ints` and `Lanes` (a mask) behave as one would expect of numbers. Products are of
// codes, four to a lane, with factors that all lanes share: `Products` sums signed codes of 8 bits
// times factors of 16 (queries, probabilities); `Bytes` and `Nibbles` say how the unsigned codes of
// weights, of 8 and 4 bits, are multiplied with inputs. How a factor is cut, and how many sums stay
// in registers, is each CPU's own.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>

namespace rejoinder {

constexpr int kLanes = 16;  // floats or int32 computed together
constexpr int kLineBytes = 64;

struct FreeDeleter {
    void operator()(void* memory) const { std::free(memory); }
};

template <typename T>
using Buffer = std::unique_ptr<T[], FreeDeleter>;

// Uninitialised, on cache lines.
template <typename T>
Buffer<T> buffer(std::size_t count) {
    std::size_t bytes = (std::max<std::size_t>(count, 1) * sizeof(T) + kLineBytes - 1) / kLineBytes * kLineBytes;
    return Buffer<T>(static_cast<T*>(std::aligned_alloc(kLineBytes, bytes)));
}

// Calls `body` with the constants 0 … N - 1: arrays that they index can stay in registers, which
// compilers do not promise of loops.
template <typename Body, int... I>
inline void each_of(Body& body, std::integer_sequence<int, I...>) {
    (body(std::integral_constant<int, I>{}), ...);
}
template <int N, typename Body>
inline void each(Body body) {
    each_of(body, std::make_integer_sequence<int, N>{});
}

// The same pointer, of which compilers know nothing: what they have read through another one they
// read again, instead of keeping more than there are registers for.
template <typename T>
inline T* anew(T* pointer) {
    asm volatile("" : "+r"(pointer));
    return pointer;
}

}  // namespace rejoinder

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#include "lanes512.h"
#else
#include "lanes256.h"
#endif

namespace rejoinder {

struct AllLanes {};
inline Floats load(AllLanes, const float* from) { return load(from); }
inline void store(AllLanes, float* to, Floats x) { store(to, x); }

// Calls `body` with the place and the lanes of each 16 of `size` numbers. Only the last may have a
// mask: to store with one takes AMD's CPUs a dozen cycles.
template <typename Body>
inline void by_lanes(int64_t size, Body body) {
    int64_t at = 0;
    for (; at + kLanes <= size; at += kLanes) body(at, AllLanes{});
    if (at < size) body(at, first_lanes(size - at));
}

// Whether one of 16 fp16 numbers has the sign bit set, zeros too.
inline bool any_signed(const uint16_t* halves) {
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves));
    return !_mm256_testz_si256(all, _mm256_set1_epi16(INT16_MIN));
}

// 2^x for x <= 0; below 2^-126 about 1e-38. Relative error 3e-7: a minimax polynomial of degree 6.
inline Floats exp2(Floats x) {
    x = max(x, floats(-126.0f));
    const Floats whole = rounded(x);
    const Floats rest = x - whole;  // -0.5 … 0.5
    Floats sum = floats(1.5403530e-4f);  // coefficients: ln(2)^n / n!
    sum = fmadd(sum, rest, floats(1.3333558e-3f));
    sum = fmadd(sum, rest, floats(9.6181291e-3f));
    sum = fmadd(sum, rest, floats(5.5504109e-2f));
    sum = fmadd(sum, rest, floats(2.4022651e-1f));
    sum = fmadd(sum, rest, floats(6.9314718e-1f));
    sum = fmadd(sum, rest, floats(1.0f));
    return times_power(sum, whole);
}

}  // namespace rejoinder
