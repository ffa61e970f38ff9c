// Parses "key = value" lines of golden cases into a struct of settings; random numbers for
// simulations.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/half.h"
#include "base/tensor_view.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules::testing {

struct SpecFields {
  std::map<std::string, int*> whole;
  std::map<std::string, double*> number;
  std::map<std::string, bool*> flag;
  std::map<std::string, std::string*> text;
  std::map<std::string, DType*> dtype;
};

// Throws std::runtime_error if a key or value is unknown.
void SetField(const SpecFields& fields, const std::string& key, const std::string& value);

// Random numbers that are equal on every platform.
class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed) {}
  double Uniform() { return static_cast<double>(rng_() >> 11) * 0x1p-53; }
  double Normal() {
    const double r = std::sqrt(-2 * std::log(1 - Uniform()));
    return r * std::cos(6.283185307179586 * Uniform());
  }
  std::mt19937_64& generator() { return rng_; }

 private:
  std::mt19937_64 rng_;
};

// Returns one of 0 to n - 1.
inline int Pick(Draw& draw, int n) { return static_cast<int>(draw.Uniform() * n); }

// Adds a trainer's rank of the simulated run.
void AddTrainer(int rank, int ranks, v1::Batch* batch);

// Values in the bytes of a dtype, rounded to nearest even.
class Stored {
 public:
  Stored() = default;
  Stored(const std::vector<double>& values, DType dtype);
  TensorView View(std::vector<int64_t> shape) const;
  std::string& bytes() { return bytes_; }

 private:
  DType dtype_ = DType::kUnspecified;
  std::string bytes_;
};

// Returns values in the form of evidence.
v1::Tensor TensorOf(const std::vector<double>& values, DType dtype,
                    const std::vector<int64_t>& shape);

}  // namespace plumbline::rules::testing
