/* Plumbline's C ABI: matrix products. Included by plumbline.h, whose rules apply. */
#ifndef PLUMBLINE_PRODUCTS_H_
#define PLUMBLINE_PRODUCTS_H_

#include "plumbline/observations.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- matrix products ---------------------------------------------------------------------------
 */

/* D = A B (+ C), complete and as it was computed. On captured steps up to 32 rows of A, the same
 * number of columns of B and the elements of D at their intersections are kept. These identify the
 * arithmetic and prove it by replay. On other steps only the call costs time. All tensors are
 * floating (not f64). */
typedef struct plumbline_matmul {
  uint32_t size;                /* sizeof(plumbline_matmul_t) */
  int32_t declared_accumulator; /* PLUMBLINE_DTYPE_* that the library promises; ABSENT: f32 */
  const DLTensor* a;            /* [..., K]: its leading axes together are the rows; required */
  const DLTensor* b;            /* [K, N]; of a weight [N, K] its transposed view; required */
  const DLTensor* d;            /* a's leading axes, then N; required */
  const DLTensor* c;            /* the added tensor: d's shape or [N]; NULL: none */
  const char* input_format;     /* "tf32" if f32 inputs are meant to be cut to it; a format's name
                                 * ("e4m3", "bf16") if values are stored in a wider one; NULL */
  const char* library;          /* the library that computed it, with its version, or NULL */
  void* cuda_stream;
  double scale;                /* one factor of the product: d = scale A B (+ c); 0: 1 */
  const DLTensor* a_scale;     /* scales of A, if A was scaled before it was cast: A's values are
                                * multiplied by them. One element: of the whole tensor. Else [..., B]
                                * with a's leading axes, B = ceil(K / block) */
  const DLTensor* b_scale;     /* [B, N], or one element. Floating, or u8 in `scale_format` */
  const char* scale_format;    /* of u8 scales: "e8m0" or "e4m3"; NULL */
  const char* output_rounding; /* "nearest", "stochastic" (of the store to d's type), or NULL */
  uint64_t block;              /* products that share a scale (32, 16, 128); 0: K */
  uint32_t a_tile;             /* neighbouring rows of a that share a scale: a_scale is [T, B] with
                                * T = ceil(rows / a_tile); 0: 1 */
  uint32_t b_tile;             /* neighbouring columns of b: b_scale is [B, ceil(N / b_tile)] */
} plumbline_matmul_t;

/* clang-format off */
#define PLUMBLINE_MATMUL_INIT                                                                 \
  {sizeof(plumbline_matmul_t), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL,   /* product */   \
   0.0, NULL, NULL, NULL, NULL, 0, 0, 0}                                      /* scales */
/* clang-format on */

PLUMBLINE_API plumbline_status_t plumbline_observe_matmul(plumbline_site_t* site,
                                                          const plumbline_matmul_t* matmul);

static inline plumbline_status_t plumbline_observe_matmul_if_due(plumbline_site_t* site,
                                                                 const plumbline_matmul_t* matmul) {
  return plumbline_due(site) ? plumbline_observe_matmul(site, matmul) : PLUMBLINE_NOT_DUE;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMBLINE_PRODUCTS_H_ */
