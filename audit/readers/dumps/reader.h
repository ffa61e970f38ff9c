// Reads tensor dumps (safetensors). One file is one call of one site; the dumps of several ranks
// and layers of a step are joined by their metadata (run, attempt, step, rank, layer, op).
//
// If a dump has no kind, or no rule of this version judges its kind, the report lists it with a
// problem. This problem is an error only if the file was named on the command line, because a
// directory may contain such files. Files of a model are read by audit/readers/checkpoint.
#pragma once

#include "audit/readers/input/reader.h"

namespace plumbline::audit {

class SafetensorsReader : public Reader {
 public:
  std::string_view format() const override { return "safetensors"; }
  bool Recognise(std::string_view path, std::string_view head) const override;
  std::vector<std::unique_ptr<Source>> Open(const std::vector<InputReport*>& files) const override;
};

}  // namespace plumbline::audit
