// One rank's checkpoint of one step: the tensors of all its files, as sites of evidence.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "audit/readers/checkpoint/contents.h"
#include "audit/readers/checkpoint/plan.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/reader.h"

namespace plumbline::audit {

// A tensor and its site.
struct SitedTensor {
  size_t file = 0;  // index of the checkpoint's file
  StoredTensor place;
  std::string layer, op, role;
  std::string replicas;        // see TensorState
  uint32_t call = 0;           // index among the tensors of this site
  std::optional<double> rate;  // for a parameter of an optimizer: its group's learning rate
  // For a second moment: how its group computes and uses it.
  std::optional<double> beta1, beta2, epsilon;
  std::optional<size_t> shared;  // for a weight that shares its storage with another: the first
                                 // one's index
  std::optional<size_t> master;  // index of a weight's fp32 master in `tensors`
};

struct WholeCheckpoint {
  struct Part {
    InputReport* report = nullptr;
    std::unique_ptr<InputFile> file;
    std::string path;  // path of the file; the report may be its index's
  };
  std::vector<Part> files;
  std::vector<SitedTensor> tensors;
  std::vector<double> rates;  // of the optimizer's parameter groups
  std::optional<double> optimizer_step, scheduler_step;
  uint64_t parameters = 0;  // number of parameters in the optimizer's groups
  // Share of the parameters with optimizer state, or listed by an optimizer, whose name is known; 0
  // if there is no optimizer state.
  double named = 0;
};

// What the numbers of an optimizer's parameters meant in the preceding checkpoints of one (run,
// rank). If a parameter has no state any more, its shape no longer identifies it.
struct KnownNames {
  struct OfFile {
    std::vector<std::vector<int64_t>> groups;
    std::map<int64_t, std::string> names;
  };
  std::map<size_t, OfFile> files;  // by the order of the files
};

// Reads the files of one (run, step, rank). If a file changed since it was planned and cannot be
// read any more, it gets a problem. Notes about all files (parameters named by order) go to the
// first file with an optimizer.
WholeCheckpoint ReadCheckpoint(std::span<const PlannedFile> plans, KnownNames* known);

}  // namespace plumbline::audit
