// Converts factors and scales of a matrix product from narrow formats to those of evidence: e2m1 to
// e4m3, which represents all its values, and scales to f32.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "audit/readers/dumps/kind.h"
#include "audit/readers/input/file.h"
#include "audit/readers/safetensors/header.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Returns the rules' name for an `input_format` in any usual spelling ("F8_E4M3", "float8_e5m2",
// "fp16", "TF32"): "tf32", "e2m1" or a DType's name. If there is no such format, returns "".
std::string InputFormatOf(std::string_view text);

// Checks the dtype of a factor: floating, or u8 (or F4) if `format` is e2m1, e4m3 or e5m2.
void CheckFactor(const TensorEntry& tensor, const std::string& format,
                 std::vector<Problem>* problems);
// Returns [m,K]. If a byte holds two values, K counts values. If the tensor does not have two axes,
// returns an empty shape.
std::vector<int64_t> FactorShape(const TensorEntry& tensor, const std::string& format);
absl::Status LoadFactor(const InputFile& file, const TensorEntry& entry, const std::string& format,
                        v1::Tensor* tensor);

// Checks the dtype of a scale: f32, f16, bf16, F8_E4M3, F8_E8M0, or u8 in `scale_format` ("e8m0" or
// "e4m3").
void CheckScale(const TensorEntry& tensor, const std::string& scale_format,
                std::vector<Problem>* problems);
absl::Status LoadScale(const InputFile& file, const TensorEntry& entry,
                       const std::string& scale_format, v1::Tensor* tensor);

}  // namespace plumbline::audit
