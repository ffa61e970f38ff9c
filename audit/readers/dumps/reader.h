// Reads tensor dumps (safetensors). One file is one call of one site; the dumps of several ranks
// and layers of a step are joined by their metadata (run, attempt, step, rank, layer, op).
//
// A dump of a kind that no rule of this version judges, or of no kind, is listed with a problem; a
// model's file belongs to audit/readers/checkpoint. The problem is an error only if the file was
// named on the command line: in a directory such files are expected.
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
