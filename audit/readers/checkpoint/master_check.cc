#include "audit/readers/checkpoint/master_check.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kMasterPiece = uint64_t{1} << 18;  // elements per piece

void CompareOne(uint64_t at, DType dtype, uint16_t code, float master, MasterCheck* out) {
  const bool bf16 = dtype == DType::kBF16;
  const auto value = [&](uint16_t c) { return bf16 ? BF16ToFloat(c) : F16ToFloat(c); };
  const float weight = value(code);
  const float nearest = value(bf16 ? FloatToBF16(master) : FloatToF16(master));
  if (weight == nearest || (std::isnan(weight) && std::isnan(nearest))) return;
  if (out->differ++ == 0) {
    out->first = at;
    out->weight = weight;
    out->master = master;
  }
  const double apart = std::fabs(static_cast<double>(weight) - static_cast<double>(master));
  // A NaN also counts as `beyond`, because no rounding of a number gives NaN.
  if (!(apart < UlpOf(master, dtype))) ++out->beyond;
}

}  // namespace

bool CanCheckMaster(const StoredTensor& weight, const StoredTensor& master) {
  const bool narrow = weight.dtype == DType::kBF16 || weight.dtype == DType::kF16;
  return narrow && master.dtype == DType::kF32 && weight.shape == master.shape && IsDense(weight) &&
         IsDense(master) && !weight.swapped && !master.swapped;
}

absl::Status CheckMaster(const InputFile& weight_file, const StoredTensor& weight,
                         const InputFile& master_file, const StoredTensor& master,
                         MasterCheck* out) {
  const auto count = static_cast<uint64_t>(weight.elements());
  std::vector<uint16_t> codes;
  std::vector<float> masters;
  for (uint64_t at = 0; at < count; at += codes.size()) {
    codes.resize(static_cast<size_t>(std::min(count - at, kMasterPiece)));
    masters.resize(codes.size());
    absl::Status status =
        weight_file.ReadAt(weight.begin + at * sizeof(uint16_t),
                           reinterpret_cast<char*>(codes.data()), codes.size() * sizeof(uint16_t));
    if (!status.ok()) return status;
    status =
        master_file.ReadAt(master.begin + at * sizeof(float),
                           reinterpret_cast<char*>(masters.data()), masters.size() * sizeof(float));
    if (!status.ok()) return status;
    for (size_t i = 0; i < codes.size(); ++i)
      CompareOne(at + i, weight.dtype, codes[i], masters[i], out);
  }
  out->compared = count;
  return absl::OkStatus();
}

}  // namespace plumbline::audit
