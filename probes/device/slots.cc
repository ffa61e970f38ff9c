#include "probes/device/slots.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

namespace plumbline::probes {

std::byte* PutProduct(const MatmulCall& call, const ProductPlan& plan, std::byte* memory) {
  auto* slot = new (memory) ProductSlot;
  std::byte* gathered = memory + PartBytes<ProductSlot>();
  slot->call = plan.elements > 0 ? SampledCall(call, plan, gathered) : WithoutSample(call, "");
  const auto keep = [](std::string_view text, char* to, size_t most) {
    const size_t n = std::min(text.size(), most);
    if (n > 0) std::memcpy(to, text.data(), n);
    return std::string_view(to, n);
  };
  slot->call.input_format = keep(call.input_format, slot->input_format, sizeof(slot->input_format));
  slot->call.library = keep(call.library, slot->library, sizeof(slot->library));
  slot->call.no_sample_reason = {};
  return gathered;
}

}  // namespace plumbline::probes
