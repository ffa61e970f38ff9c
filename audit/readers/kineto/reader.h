// Reads traces of the PyTorch profiler (Kineto) and others in Chrome's format: JSON, plain or
// compressed.
#pragma once

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// The files of all ranks are one input. Several files of one rank are ordered by time.
class KinetoReader : public Reader {
 public:
  std::string_view format() const override { return "kineto"; }
  bool Recognise(std::string_view path, std::string_view head) const override;
  std::vector<std::unique_ptr<Source>> Open(const std::vector<InputReport*>& files) const override;
};

}  // namespace plumbline::audit
