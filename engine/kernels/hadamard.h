// The orthonormal Walsh-Hadamard transform, by blocks of the largest power of two in the size.
#pragma once

#include "simd.h"

namespace rejoinder {

template <int W>
inline void butterflies_within(float* x, int64_t dim) {
    for (int64_t d = 0; d < dim; d += kLanes) store(x + d, butterflies<W>(load(x + d)));
}

// x [dim] in place, `dim` a multiple of 16. Its own inverse.
inline void transform(float* x, int64_t dim) {
    const int64_t block = dim & -dim;
    butterflies_within<1>(x, dim);
    butterflies_within<2>(x, dim);
    butterflies_within<4>(x, dim);
    butterflies_within<8>(x, dim);
    for (int64_t width = kLanes; width < block; width *= 2)
        for (int64_t start = 0; start < dim; start += 2 * width)
            for (int64_t d = start; d < start + width; d += kLanes) {
                const Floats first = load(x + d), second = load(x + d + width);
                store(x + d, first + second);
                store(x + d + width, first - second);
            }
    const Floats factor = floats(1.0f / std::sqrt(static_cast<float>(block)));
    for (int64_t d = 0; d < dim; d += kLanes) store(x + d, load(x + d) * factor);
}

}  // namespace rejoinder
