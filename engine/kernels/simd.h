// What the kernels compute with: 16 lanes of 32 bits, whatever registers the CPU has.
//
// `Floats`, `Ints` and `Lanes` (a mask) behave as one would expect of numbers. Products are of
// 8-bit codes, four to a lane, with factors that all lanes share: `Products` sums signed codes
// times factors of 16 bits (queries, probabilities), `ByteProducts` the unsigned codes of weights
// times inputs. How a factor is cut, and how many sums stay in registers, is each CPU's own.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>

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

}  // namespace rejoinder

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#include "lanes512.h"
#else
#include "lanes256.h"
#endif

namespace rejoinder {

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
