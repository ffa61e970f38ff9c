// Exact sums by MPFR, as a reference for tests: 8,192 bits hold any sum of f64 values and of their
// squares without rounding.
#pragma once

#include <mpfr.h>

namespace plumbline {

class ExactReference {
 public:
  ExactReference() {
    mpfr_init2(sum_, 8192);
    mpfr_init2(term_, 256);
    mpfr_set_zero(sum_, 1);
  }
  ~ExactReference() {
    mpfr_clear(sum_);
    mpfr_clear(term_);
  }
  ExactReference(const ExactReference&) = delete;
  ExactReference& operator=(const ExactReference&) = delete;

  void Add(double x) { mpfr_add_d(sum_, sum_, x, MPFR_RNDN); }
  void Subtract(double x) { mpfr_sub_d(sum_, sum_, x, MPFR_RNDN); }
  void AddProduct(double a, double b) {
    mpfr_set_d(term_, a, MPFR_RNDN);
    mpfr_mul_d(term_, term_, b, MPFR_RNDN);
    mpfr_add(sum_, sum_, term_, MPFR_RNDN);
  }

  // Returns the nearest double, and the remainder.
  void Nearest(double* high, double* low) {
    *high = mpfr_get_d(sum_, MPFR_RNDN) + 0.0;
    *low = 0;
    if (*high - *high != 0) return;
    mpfr_t rest;
    mpfr_init2(rest, 8192);
    mpfr_sub_d(rest, sum_, *high, MPFR_RNDN);
    *low = mpfr_get_d(rest, MPFR_RNDN) + 0.0;
    mpfr_clear(rest);
  }
  double Nearest() {
    double high;
    double low;
    Nearest(&high, &low);
    return high;
  }

 private:
  mpfr_t sum_;
  mpfr_t term_;
};

}  // namespace plumbline
