// What several kernels share. AVX512 with VNNI; sizes are checked by the callers in Python.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace rejoinder {

constexpr int kLanes = 16;  // floats or int32 in a register
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

inline __mmask16 first_lanes(int64_t count) {
    return count >= kLanes ? 0xFFFF : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

// 2^x for x <= 0; below 2^-126 about 1e-38. Relative error 3e-7: a minimax polynomial of degree 6.
inline __m512 exp2_ps(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-126.0f));
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 rest = _mm512_sub_ps(x, whole);  // -0.5 … 0.5
    __m512 sum = _mm512_set1_ps(1.5403530e-4f);  // coefficients: ln(2)^n / n!
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.3333558e-3f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(9.6181291e-3f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(5.5504109e-2f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(2.4022651e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(6.9314718e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(sum, whole);
}

}  // namespace rejoinder
