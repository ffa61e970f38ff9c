// BLAS on the CPU, by its Fortran and C interfaces. A Fortran caller passes the lengths of
// character arguments after all others; a C caller does not, and then the words that are forwarded
// are never read.
#include "agent/interpose/interpose.h"

namespace plumbline::interpose {

PLUMB_INTERPOSE(void, sgemm_,
                (Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, Word lda, Word b,
                 Word ldb, Word beta, Word c, Word ldc, Word length_ta, Word length_tb),
                (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, length_ta, length_tb),
                Count({.function = CallFunction::sgemm_}))
PLUMB_INTERPOSE(void, dgemm_,
                (Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, Word lda, Word b,
                 Word ldb, Word beta, Word c, Word ldc, Word length_ta, Word length_tb),
                (ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, length_ta, length_tb),
                Count({.function = CallFunction::dgemm_}))
PLUMB_INTERPOSE(void, sgemv_,
                (Word t, Word m, Word n, Word alpha, Word a, Word lda, Word x, Word incx, Word beta,
                 Word y, Word incy, Word length_t),
                (t, m, n, alpha, a, lda, x, incx, beta, y, incy, length_t),
                Count({.function = CallFunction::sgemv_}))
PLUMB_INTERPOSE(void, dgemv_,
                (Word t, Word m, Word n, Word alpha, Word a, Word lda, Word x, Word incx, Word beta,
                 Word y, Word incy, Word length_t),
                (t, m, n, alpha, a, lda, x, incx, beta, y, incy, length_t),
                Count({.function = CallFunction::dgemv_}))
PLUMB_INTERPOSE(void, cblas_sgemm,
                (Word order, Word ta, Word tb, Word m, Word n, Word k, float alpha, Word a,
                 Word lda, Word b, Word ldb, float beta, Word c, Word ldc),
                (order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc),
                Count({.function = CallFunction::cblas_sgemm}))
PLUMB_INTERPOSE(void, cblas_dgemm,
                (Word order, Word ta, Word tb, Word m, Word n, Word k, double alpha, Word a,
                 Word lda, Word b, Word ldb, double beta, Word c, Word ldc),
                (order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc),
                Count({.function = CallFunction::cblas_dgemm}))
PLUMB_INTERPOSE(void, cblas_cgemm,
                (Word order, Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, Word lda,
                 Word b, Word ldb, Word beta, Word c, Word ldc),
                (order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc),
                Count({.function = CallFunction::cblas_cgemm}))
PLUMB_INTERPOSE(void, cblas_zgemm,
                (Word order, Word ta, Word tb, Word m, Word n, Word k, Word alpha, Word a, Word lda,
                 Word b, Word ldb, Word beta, Word c, Word ldc),
                (order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc),
                Count({.function = CallFunction::cblas_zgemm}))

}  // namespace plumbline::interpose
