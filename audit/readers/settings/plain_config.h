// Reads settings of a run from a small file that its logger wrote next to its series.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace plumbline::audit {

// Both add "config: NAME" for each number, text and flag of `name`, a path relative to the folder
// of `file`. If the file is absent, too large or of another form, they add nothing: its series are
// valid without it. YAML is read in the form of W&B and SwanLab: `NAME:` with an indented `value:
// VALUE` below.
void TakeJsonConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings);
void TakeYamlConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings);

// Adds "config: NAME" with this value. A value that is empty or longer than 1 KiB is left out.
void AddConfig(std::string_view name, std::string_view value,
               std::map<std::string, std::string>* settings);
// The same for each number, text and flag of a JSON object; names begin with `prefix`.
void AddJsonConfig(std::string_view json, const std::string& prefix,
                   std::map<std::string, std::string>* settings);
// The same for each file of a folder: its name, and the text in it. Names of nested folders are
// joined by '/'.
void AddFolderConfig(const std::string& folder, std::map<std::string, std::string>* settings);

}  // namespace plumbline::audit
