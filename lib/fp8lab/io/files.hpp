#pragma once
// Whole files in and out. A file that is written is never seen half done (see
// output_file.hpp).

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace fp8lab {

/// Reads a whole file, or a stream that this process was given (/dev/stdin, a
/// shell's <(...)) of at most 1 GiB. Throws `Error` with the path and the reason;
/// folders, devices and named pipes are refused.
std::string read_file(const std::filesystem::path& path);

/// Writes a whole file, replacing one that is there. Throws `Error` with the
/// path and the system's reason.
void write_file(const std::filesystem::path& path, std::string_view text);

/// The same for what `write` puts into the stream. If it throws, or the disk is
/// full, no partial file is left and a file that was there stays as it was.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

/// Makes `folder` where it is missing. Throws `Error` with the path and the
/// reason unless files can be written there: before hours of work, not after.
void make_writable_folder(const std::filesystem::path& folder);

/// Throws `Error` naming `argument` unless `name` is made of letters, digits,
/// `-`, `_` and inner dots, so that it names a file of the folder it is in.
void require_file_name(std::string_view argument, std::string_view name);

}  // namespace fp8lab
