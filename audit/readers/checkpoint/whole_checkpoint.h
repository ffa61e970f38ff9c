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
  size_t file = 0;  // index of its file in the checkpoint
  StoredTensor place;
  std::string layer, op, role;
  std::string replicas;        // see TensorState
  uint32_t call = 0;           // index among the tensors of this site
  std::optional<double> rate;  // for a parameter of an optimizer: its group's learning rate
  // For a second moment: the parameters with which its group computes and uses it.
  std::optional<double> beta1, beta2, epsilon;
  // For a weight that shares its storage: index of the first weight in that storage.
  std::optional<size_t> shared;
  std::optional<size_t> master;  // index of a weight's fp32 master in `tensors`
};

struct WholeCheckpoint {
  struct Part {
    InputReport* report = nullptr;
    std::unique_ptr<InputFile> file;
    std::string path;  // path of the file; the report may be that of its index
  };
  std::vector<Part> files;
  std::vector<SitedTensor> tensors;
  std::vector<double> rates;  // learning rates of the optimizer's parameter groups
  std::optional<double> optimizer_step, scheduler_step;
  uint64_t parameters = 0;  // number of parameters in the optimizer's groups
  // Share of the parameters with optimizer state, or listed by an optimizer, whose name is known; 0
  // if there is no optimizer state.
  double named = 0;
};

// Names of an optimizer's numbered parameters, from the preceding checkpoints of one (run, rank).
// They are kept because a parameter without state has no shape that would identify it.
struct KnownNames {
  struct OfFile {
    std::vector<std::vector<int64_t>> groups;
    std::map<int64_t, std::string> names;
  };
  std::map<size_t, OfFile> files;  // key: position among the files
};

// Reads the files of one (run, step, rank). If a file changed since it was planned and cannot be
// read any more, it gets a problem. Notes about all files (parameters named by order) go to the
// first file with an optimizer.
WholeCheckpoint ReadCheckpoint(std::span<const PlannedFile> plans, KnownNames* known);

}  // namespace plumbline::audit
