// Reads checkpoints of all trainers (torch.save, safetensors) as a series of one run.
//
// Input: a file, a sharded set with its index, or folders of steps; ranks of Megatron and DeepSpeed
// by their names. The tensors of a step become the evidence that a probe would have sent.
#pragma once

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

class CheckpointReader : public Reader {
 public:
  std::string_view format() const override { return "checkpoint"; }
  // For a safetensors file, reads the whole header, to exclude a probe's dump, which is another
  // format.
  bool Recognise(std::string_view path, std::string_view head) const override;
  std::vector<std::unique_ptr<Source>> Open(const std::vector<InputReport*>& files) const override;
  std::vector<std::unique_ptr<Source>> OpenWith(const std::vector<InputReport*>& files,
                                                const ReaderOptions& options) const override;
};

}  // namespace plumbline::audit
