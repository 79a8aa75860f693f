
####### Expanded from @PACKAGE_INIT@ by configure_package_config_file() #######
####### Any changes to this file will be overwritten by the next CMake run ####
####### The input file was fp8labConfig.cmake.in                            ########

get_filename_component(PACKAGE_PREFIX_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../" ABSOLUTE)

macro(set_and_check _var _file)
  set(${_var} "${_file}")
  if(NOT EXISTS "${_file}")
    message(FATAL_ERROR "File or directory ${_file} referenced by variable ${_var} does not exist !")
  endif()
endmacro()

macro(check_required_components _NAME)
  foreach(comp ${${_NAME}_FIND_COMPONENTS})
    if(NOT ${_NAME}_${comp}_FOUND)
      if(${_NAME}_FIND_REQUIRED_${comp})
        set(${_NAME}_FOUND FALSE)
      endif()
    endif()
  endforeach()
endmacro()

####################################################################################
include(CMakeFindDependencyMacro)
# A static build passes on what it links with; a shared one keeps it to itself.
if(NOT OFF)
  list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})
  find_dependency(OpenMP COMPONENTS CXX)
  find_dependency(fmt)
  find_dependency(Eigen3)
  find_dependency(nlohmann_json)
  find_dependency(tomlplusplus)
  find_dependency(Random123)
  find_dependency(hwy)
  find_dependency(LibZip)
  foreach(optional )
    find_dependency(${optional})
  endforeach()
endif()
include(${CMAKE_CURRENT_LIST_DIR}/fp8labTargets.cmake)
check_required_components(fp8lab)
