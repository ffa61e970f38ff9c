// Checkpoints: what every trainer keeps (torch.save, safetensors), judged as a series of one run.
//
// A file, a sharded set with its index, or folders of steps; ranks of Megatron and DeepSpeed by
// their names. The tensors of a step become the evidence that a probe would have sent.
#pragma once

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

class CheckpointReader : public Reader {
 public:
  std::string_view format() const override { return "checkpoint"; }
  // Of a safetensors file the whole header is looked at: a probe's dumps are another format.
  bool Recognise(std::string_view path, std::string_view head) const override;
  std::vector<std::unique_ptr<Source>> Open(const std::vector<InputReport*>& files) const override;
  std::vector<std::unique_ptr<Source>> OpenWith(const std::vector<InputReport*>& files,
                                                const ReaderOptions& options) const override;
};

}  // namespace plumbline::audit
