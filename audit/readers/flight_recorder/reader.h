// Reads dumps of PyTorch's flight recorder (TORCH_NCCL_DUMP_ON_TIMEOUT): pickles and JSON, one file
// per rank.
#pragma once

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// The files of all ranks are one input.
class FlightRecorderReader : public Reader {
 public:
  std::string_view format() const override { return "flight-recorder"; }
  bool Recognise(std::string_view path, std::string_view head) const override;
  // Accepts, in the folder of a dump, a file whose name differs only in the number, and a pickle.
  Adjacent Judge(const std::string& path, std::string_view head,
                 const std::vector<InputReport*>& files) const override;
  std::vector<std::unique_ptr<Source>> Open(const std::vector<InputReport*>& files) const override;
};

}  // namespace plumbline::audit
