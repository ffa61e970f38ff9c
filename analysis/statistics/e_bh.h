// Finds which of many tensors are biased: e-BH (Wang and Ramdas, "False discovery rate control with
// e-values", 2022). Among the selected tensors, the expected share of unbiased ones is at most
// alpha, for any dependence between them.
#pragma once

#include <span>
#include <vector>

namespace plumbline::analysis {

// `log_e` is ln of one e-value per tensor (wealth at one time; its running maximum is not an
// e-value). NaN is never selected but counts as a tensor. Returns [log_e.size()] flags. The k
// largest are selected, where k is the largest number such that the k-th e-value is at least K /
// (alpha k). Pure.
std::vector<bool> SelectByEBh(std::span<const double> log_e, double alpha);

}  // namespace plumbline::analysis
